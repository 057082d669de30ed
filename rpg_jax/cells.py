"""The rate from a NIW posterior per (context, arm) and one Dinkelbach step."""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rpg_jax import checks, conjugate, dinkelbach
from rpg_jax.arrays import select, tiny
from rpg_jax.conjugate import NIW, Moments
from rpg_jax.forgetting import (
    CELL_MEMORY,
    FADED,
    LEAST_MEMORY,
    Forgetting,
    check_forgetting,
    kept_share,
)
from rpg_jax.slots import one_pair_prior
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
    number: Float[Array, "contexts arms"]  # observations, those forgotten count less
    fresh: Float[Array, "contexts arms"]  # weight of the newest one; 0 without any
    rejected: Int[Array, ""]


class _Cells(NamedTuple):
    """Arguments of ``niw`` that its functions need."""

    shape: tuple[int, int]
    context_probs: Float[ArrayLike, " contexts"] | None
    log_duration: bool
    forgetting: Forgetting
    quantile: float | None
    prior_kappa: float | Float[Array, ""]


def niw(
    num_contexts: int,
    num_arms: int,
    *,
    prior: NIW | None = None,
    context_probs: Float[ArrayLike, " contexts"] | None = None,
    log_duration: bool = False,
    forgetting: Forgetting = None,
    quantile: float | None = None,
) -> RateEstimator:
    """A NIW posterior over (reward, duration) in each cell, and a Dinkelbach step.

    rate(state, rho_k) = R_u / D_u of u(x) = argmax_a m_r(x, a) - rho_k m_d(x, a), means
    over contexts of the cells' posterior means. Arms without data are not considered (a
    prior is no evidence), nor those whose data have faded beside fresher ones of their
    context, nor contexts without any; 0 before any data.

    Args:
      num_contexts: X.
      num_arms: A, SKIP included where there is one.
      prior: unbatched ``niw_prior``; the vague default if None.
      context_probs: [X] probabilities of the contexts; uniform if None.
      log_duration: model log seconds; a cell's mean is then exp(m + v / 2).
      forgetting: what a batch leaves of the weight of every cell's past, whether it
        touches the cell or not, in (0, 1]; 1 forgets nothing. None is a memory of 16
        decisions per cell, and 256 at least, whatever the batches' size.
      quantile: None for the plug-in rate, else the level of an (optimistic) quantile of
        the greedy policy's rate under the posterior of the means.

    Raises:
      ValueError: a size, forgetting or quantile out of range, or context_probs that are
        not X weights >= 0.
    """
    sizes = [
        checks.count(name, size, least=0)
        for name, size in (("num_contexts", num_contexts), ("num_arms", num_arms))
    ]
    if not 1 <= sizes[0] * sizes[1] <= 10**7:
        raise ValueError(f"need contexts and arms, got {num_contexts} x {num_arms}")
    check_forgetting(forgetting)
    check_unit(forgetting=1.0, quantile=quantile)
    probs = checked_weights(context_probs, num_contexts)
    base = one_pair_prior(prior)
    shape = (num_contexts, num_arms)
    table = _Cells(shape, probs, log_duration, forgetting, quantile, base.kappa)

    def init() -> CellState:
        cells = jax.tree.map(lambda p: jnp.broadcast_to(p, shape + p.shape), base)
        zeros = jnp.zeros(shape)
        return CellState(cells, zeros, zeros, jnp.zeros((), jnp.int32))

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
    state = _faded(table, state, jnp.sum(keep, dtype=pairs.dtype))
    cells = state.cells
    # A posterior given no data is its prior, up to the guard on definiteness.
    fitted = conjugate.posterior(cells, data)
    return CellState(
        cells=select(data.number <= 0, cells, fitted),
        number=state.number + data.number,
        fresh=jnp.where(data.number > 0, 1, state.fresh),
        rejected=state.rejected + rejected,
    )


def _faded(table: _Cells, state: CellState, rows: Float[Array, ""]) -> CellState:
    """Every cell after it forgot: none knows less of its mean than the prior does."""
    cells = table.shape[0] * table.shape[1]
    memory = max(CELL_MEMORY * cells, LEAST_MEMORY)
    kept = kept_share(table.forgetting, rows, memory=memory)
    if kept is None:
        return state
    share = jnp.broadcast_to(kept, table.shape)
    floor = jnp.asarray(table.prior_kappa, share.dtype) / state.cells.kappa
    faded = conjugate.forget(state.cells, jnp.clip(floor, share, 1))
    seen = state.fresh > 0
    return state._replace(
        # A cell without data is its prior still, whose nu may be below the floor.
        cells=select(seen & (rows > 0), faded, state.cells),
        number=state.number * share,
        # Above 0: a context that is not visited for long keeps its arms.
        fresh=jnp.where(seen, jnp.maximum(state.fresh * share, 1e-30), 0),
    )


def _considered(fresh: Float[Array, "contexts arms"]) -> Bool[Array, "contexts arms"]:
    """Arms with data, without those that faded while another of the context did not."""
    newest = jnp.max(fresh, axis=-1, keepdims=True)
    return (fresh > 0) & (fresh >= FADED * newest)


def _cell_rate(
    table: _Cells, state: CellState, rho_k: Float[Array, ""]
) -> Float[Array, ""]:
    """One Dinkelbach step on the cells' means, and perhaps z standard deviations."""
    cells, tried = state.cells, _considered(state.fresh)
    reward, duration = cells.mean[..., 0], cells.mean[..., 1]
    # Posterior covariance of the cell's mean; finite once nu > 3.
    spread = cells.scale / jnp.maximum(cells.nu - 3, 1)[..., None, None]
    if table.log_duration:
        # The cap keeps an absurd variance from overflowing; exp(40) seconds is.
        duration = jnp.exp(jnp.minimum(duration + spread[..., 1, 1] / 2, 40))
    rho_k = jnp.asarray(rho_k, reward.dtype)
    policy = dinkelbach.argmax_policy(reward, duration, rho_k, mask=tried)
    plug_in = dinkelbach.dinkelbach_step(
        reward, duration, rho_k, context_probs=table.context_probs, mask=tried
    )
    if table.quantile is None:
        return plug_in
    unit = duration if table.log_duration else jnp.ones_like(duration)
    price = plug_in * unit
    size = jnp.maximum(jnp.abs(price), 1)  # its square could leave float32
    price = price / size
    variance = (
        spread[..., 0, 0] / size / size
        - 2 * price / size * spread[..., 0, 1]
        + price * price * spread[..., 1, 1]
    ) / cells.kappa
    probs = dinkelbach.context_weights(reward, table.context_probs, tried)
    chosen = jnp.take_along_axis(variance, policy[:, None], axis=-1)[:, 0]
    _, time = dinkelbach.policy_totals(
        policy, reward, duration, context_probs=table.context_probs, mask=tried
    )
    size = jnp.take_along_axis(size, policy[:, None], axis=-1)[:, 0]
    each = probs * jnp.sqrt(jnp.maximum(chosen, tiny(chosen))) * size
    most = jnp.maximum(jnp.max(jnp.where(probs > 0, each, 0)), tiny(each))
    sd = most * jnp.sqrt(jnp.sum(jnp.square(jnp.where(probs > 0, each / most, 0))))
    z = NormalDist().inv_cdf(table.quantile)
    return jnp.where(time > 0, plug_in + z * sd / jnp.where(time > 0, time, 1), 0)
