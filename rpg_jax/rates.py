"""Estimators of the reward rate of the greedy policy, behind one interface.

Each factory returns a ``RateEstimator``. ``niw`` keeps a posterior per (context, arm)
and plugs its means into one Dinkelbach step; ``niw_slots`` is the paper's pooled
posterior; ``robbins_monro``, ``neural`` and ``empirical`` are alternatives to them.
The pooled ones estimate the rate of whatever they are fed: feed them greedy decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from rpg_jax import conjugate, dinkelbach
from rpg_jax.arrays import concrete, select, tiny
from rpg_jax.conjugate import NIW, Moments
from rpg_jax.neural import NeuralState, neural
from rpg_jax.slots import SlotState, niw_slots
from rpg_jax.types import (
    Batch,
    RateEstimator,
    check_unit,
    checked_weights,
    usable_rows,
)


class CellState(NamedTuple):
    """State of ``niw``."""

    cells: NIW  # batch shape [X, A]
    number: Float[Array, "contexts arms"]  # observations a cell has seen
    rejected: Int[Array, ""]


class RobbinsMonroState(NamedTuple):
    """State of ``robbins_monro``."""

    rate: Float[Array, ""]
    duration: Float[Array, ""]  # running mean of seconds, the unit of the step
    number: Float[Array, ""]  # rows seen
    step: Int[Array, ""]  # updates that had data
    rejected: Int[Array, ""]


__all__ = [
    "CellState",
    "NeuralState",
    "RobbinsMonroState",
    "SlotState",
    "empirical",
    "fixed_point",
    "neural",
    "niw",
    "niw_slots",
    "robbins_monro",
]


class _Cells(NamedTuple):
    """Arguments of ``niw`` that its functions need."""

    shape: tuple[int, int]
    context_probs: Float[ArrayLike, " contexts"] | None
    log_duration: bool
    forgetting: float
    quantile: float | None


def niw(
    num_contexts: int,
    num_arms: int,
    *,
    prior: NIW | None = None,
    context_probs: Float[ArrayLike, " contexts"] | None = None,
    log_duration: bool = False,
    forgetting: float = 1.0,
    quantile: float | None = None,
) -> RateEstimator:
    """A NIW posterior over (reward, duration) in each cell, and a Dinkelbach step.

    rate(state, rho_k) = R_u / D_u of u(x) = argmax_a m_r(x, a) - rho_k m_d(x, a), means
    over contexts of the cells' posterior means. Arms without data are not considered (a
    prior is no evidence) and neither are contexts without any; 0 before any data.

    Args:
      num_contexts: X.
      num_arms: A, SKIP included where there is one.
      prior: unbatched ``niw_prior``; the vague default if None.
      context_probs: [X] probabilities of the contexts; uniform if None.
      log_duration: model log seconds; a cell's mean is then exp(m + v / 2).
      forgetting: discount of a cell's posterior before each batch that touches it.
      quantile: None for the plug-in rate, else the level of an (optimistic) quantile of
        the greedy policy's rate under the posterior of the means.

    Raises:
      ValueError: a size, forgetting or quantile out of range, or context_probs that are
        not X weights >= 0.
    """
    if num_contexts < 1 or num_arms < 1:
        raise ValueError(f"need contexts and arms, got {num_contexts} x {num_arms}")
    check_unit(forgetting=forgetting, quantile=quantile)
    probs = checked_weights(context_probs, num_contexts)
    base = conjugate.niw_prior() if prior is None else prior
    shape = (num_contexts, num_arms)
    table = _Cells(shape, probs, log_duration, forgetting, quantile)

    def init() -> CellState:
        cells = jax.tree.map(lambda p: jnp.broadcast_to(p, shape + p.shape), base)
        return CellState(cells, jnp.zeros(shape), jnp.zeros((), jnp.int32))

    # A single context or arm needs no index.
    indices = (("context", num_contexts), ("action", num_arms))
    return RateEstimator(
        init=init,
        update=lambda state, batch: _update_cells(table, state, batch),
        rate=lambda state, rho_k: _cell_rate(table, state, rho_k),
        needs=tuple(name for name, number in indices if number > 1),
    )


def _update_cells(table: _Cells, state: CellState, batch: Batch) -> CellState:
    contexts, arms = table.shape
    batch, keep, rejected = usable_rows(batch, num_contexts=contexts, num_arms=arms)
    seconds = jnp.where(keep, batch.duration, 1)
    second = jnp.log(seconds) if table.log_duration else seconds
    pairs = jnp.stack([jnp.where(keep, batch.reward, 0), second], axis=-1)
    flat = jnp.where(keep, batch.context * arms + batch.action, 0)
    data = conjugate.segment_moments(pairs, flat, contexts * arms, keep)
    number, mean, scatter, residual = (
        v.reshape(table.shape + v.shape[1:]) for v in data[:4]
    )
    data = Moments(number, mean, scatter, residual, data.rejected)
    cells = state.cells
    if table.forgetting != 1.0:
        faded = conjugate.forget(cells, table.forgetting)
        cells = select(data.number > 0, faded, cells)
    # A posterior given no data is its prior, up to the guard on definiteness.
    fitted = conjugate.posterior(cells, data)
    return CellState(
        cells=select(data.number <= 0, cells, fitted),
        number=state.number + data.number,
        rejected=state.rejected + rejected,
    )


def _cell_rate(
    table: _Cells, state: CellState, rho_k: Float[Array, ""]
) -> Float[Array, ""]:
    """One Dinkelbach step on the cells' means, and perhaps z standard deviations."""
    cells, tried = state.cells, state.number > 0
    reward, duration = cells.mean[..., 0], cells.mean[..., 1]
    # Posterior covariance of the cell's mean; finite once nu > 3.
    spread = cells.scale / jnp.maximum(cells.nu - 3, 1)[..., None, None]
    if table.log_duration:
        # The cap keeps an absurd variance from overflowing; exp(40) seconds is.
        duration = jnp.exp(jnp.minimum(duration + spread[..., 1, 1] / 2, 40))
    rho_k = jnp.asarray(rho_k, reward.dtype)
    policy = dinkelbach.greedy_policy(reward, duration, rho_k, mask=tried)
    plug_in = dinkelbach.greedy_rate(
        reward, duration, rho_k, context_probs=table.context_probs, mask=tried
    )
    if table.quantile is None:
        return plug_in
    unit = duration if table.log_duration else jnp.ones_like(duration)
    variance = (
        spread[..., 0, 0]
        - 2 * plug_in * unit * spread[..., 0, 1]
        + jnp.square(plug_in * unit) * spread[..., 1, 1]
    ) / cells.kappa
    probs = dinkelbach.context_weights(reward, table.context_probs, tried)
    chosen = jnp.take_along_axis(variance, policy[:, None], axis=-1)[:, 0]
    _, time = dinkelbach.policy_totals(
        policy, reward, duration, context_probs=table.context_probs, mask=tried
    )
    total = jnp.sum(jnp.square(probs) * jnp.where(probs > 0, chosen, 0))
    sd = jnp.sqrt(jnp.maximum(total, tiny(total)))
    z = NormalDist().inv_cdf(table.quantile)
    return jnp.where(time > 0, plug_in + z * sd / jnp.where(time > 0, time, 1), 0)


def robbins_monro(
    step_size: float | Callable[[Int[Array, ""]], Float[Array, ""]],
) -> RateEstimator:
    """Stochastic approximation of the root of E[r - rho delta].

    rho <- (rho + a r / m) / (1 + a delta / m) with m the running mean of delta: the
    implicit form of rho + a (r - rho delta) / m. It has the same root, and no duration,
    however long, can make it overshoot.

    Args:
      step_size: a > 0, or a schedule of the number of earlier updates, as in optax;
        where it gives no finite rate (1 / k at k = 0) the rate stays as it was.

    Raises:
      ValueError: a constant step that is not finite and > 0.

    Source: Robbins and Monro (1951); Toulis and Airoldi (2017) for the implicit form.
    """

    constant = None if callable(step_size) else concrete(step_size)
    if constant is not None and not (0 < constant < math.inf):
        raise ValueError(f"step_size must be finite and > 0, got {step_size}")

    def init() -> RobbinsMonroState:
        return RobbinsMonroState(
            rate=jnp.zeros(()),
            duration=jnp.zeros(()),
            number=jnp.zeros(()),
            step=jnp.zeros((), jnp.int32),
            rejected=jnp.zeros((), jnp.int32),
        )

    def update(state: RobbinsMonroState, batch: Batch) -> RobbinsMonroState:
        batch, keep, rejected = usable_rows(batch)
        number = jnp.sum(keep, dtype=batch.reward.dtype)
        safe = jnp.maximum(number, 1)
        reward = jnp.sum(jnp.where(keep, batch.reward, 0)) / safe
        duration = jnp.sum(jnp.where(keep, batch.duration, 0)) / safe
        count = state.number + number
        mean = state.duration + (duration - state.duration) * (
            number / jnp.maximum(count, 1)
        )
        a = step_size(state.step) if callable(step_size) else step_size
        a = jnp.asarray(a, reward.dtype) / jnp.where(mean > 0, mean, 1)
        moved = (state.rate + a * reward) / (1 + a * duration)
        fed = number > 0
        return RobbinsMonroState(
            rate=jnp.where(fed & jnp.isfinite(moved), moved, state.rate),
            duration=jnp.where(fed, mean, state.duration),
            number=count,
            step=state.step + fed.astype(jnp.int32),
            rejected=state.rejected + rejected,
        )

    return RateEstimator(init, update, lambda state, rho_k: state.rate)


def empirical() -> RateEstimator:
    """Sum of rewards over sum of seconds of everything it was fed; 0 before data.

    Fed every decision it is the on-policy rate of the SMDP policy gradient; fed greedy
    decisions, the greedy policy's. Kept as centred means, which a long stream does not
    saturate in float32.
    """

    def init() -> Moments:
        return conjugate.empty_moments()

    def update(state: Moments, batch: Batch) -> Moments:
        batch, keep, rejected = usable_rows(batch)
        pairs = jnp.stack(
            [
                jnp.where(keep, batch.reward, 0),
                jnp.where(keep, batch.duration, 0),
            ],
            axis=-1,
        )
        merged = conjugate.merge(state, conjugate.moments(pairs, keep))
        return merged._replace(rejected=state.rejected + rejected)

    def rate(state: Moments, rho_k: Float[Array, ""]) -> Float[Array, ""]:
        reward, duration = state.mean[..., 0], state.mean[..., 1]
        seen = duration > 0
        return jnp.where(seen, reward / jnp.where(seen, duration, 1), 0)

    return RateEstimator(init, update, rate)


def fixed_point(
    estimator: RateEstimator,
    state: Any,
    rho: Float[Array, ""] | float,
    *,
    num_steps: int = 8,
) -> Float[Array, ""]:
    """Iterate rho <- rate(state, rho): Dinkelbach on the estimator's own tables."""
    start = jnp.asarray(rho, jnp.zeros(()).dtype)
    end: Array = jax.lax.fori_loop(
        0, num_steps, lambda _, value: estimator.rate(state, value), start
    )
    return end
