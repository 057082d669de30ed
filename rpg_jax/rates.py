"""Estimators of the reward rate of the greedy policy, behind one interface.

Each factory returns a ``RateEstimator``. ``niw`` keeps a posterior per (context, arm)
and plugs its means into one Dinkelbach step; ``niw_slots`` is the paper's pooled
posterior; ``robbins_monro``, ``neural`` and ``empirical`` are alternatives to them.
The pooled ones estimate the rate of whatever they are fed: feed them greedy decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rpg_jax import checks, conjugate
from rpg_jax.arrays import concrete
from rpg_jax.cells import CellState, niw
from rpg_jax.conjugate import Moments
from rpg_jax.dinkelbach import RATES
from rpg_jax.forgetting import (
    POOLED_MEMORY,
    Forgetting,
    check_forgetting,
    kept_share,
)
from rpg_jax.neural import NeuralState, neural
from rpg_jax.slots import SlotState, niw_slots
from rpg_jax.types import Batch, RateEstimator, usable_rows


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

    constant = None
    if not callable(step_size):
        constant = concrete(checks.real("step_size", step_size))
    if constant is not None and (constant.shape or not 0 < constant < 1e30):
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


def empirical(*, forgetting: Forgetting = None) -> RateEstimator:
    """Sum of rewards over sum of seconds of what it was fed lately; 0 before data.

    Fed every decision it is the on-policy rate of the SMDP policy gradient; fed greedy
    decisions, the greedy policy's. Kept as centred means, which a long stream does not
    saturate in float32.

    Args:
      forgetting: what a batch leaves of the weight of the past, in (0, 1]; 1 averages
        over all of it. None is a memory of 256 decisions, whatever the batches' size.

    Raises:
      ValueError: forgetting out of range.
    """
    check_forgetting(forgetting)

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
        data = conjugate.moments(pairs, keep)
        kept = kept_share(forgetting, data.number, memory=POOLED_MEMORY)
        if kept is not None:
            state = state._replace(
                number=state.number * kept, scatter=state.scatter * kept
            )
        merged = conjugate.merge(state, data)
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
    """Iterate rho <- rate(state, rho): Dinkelbach on the estimator's own tables.

    Args:
      estimator: a ``RateEstimator``.
      state: its state.
      rho: where to start, reward per second.
      num_steps: static number of steps.

    Raises:
      TypeError: no estimator, or no numbers.
      ValueError: rho is not finite, or num_steps < 0.
    """
    if not isinstance(estimator, RateEstimator):
        raise TypeError(f"want a RateEstimator, got {type(estimator).__name__}")
    num_steps = checks.count("num_steps", num_steps, least=0)
    rho = checks.scalar("rho", rho, RATES)
    start = jnp.asarray(rho, jnp.zeros(()).dtype)
    end: Array = jax.lax.fori_loop(
        0, num_steps, lambda _, value: estimator.rate(state, value), start
    )
    return end
