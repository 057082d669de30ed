"""Shared types: a batch of decisions and the rate-estimator interface."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.conjugate import magnitude_limit

Array = jax.Array
State = Any


class Batch(NamedTuple):
    """B decisions; rows with a false mask are padding and are never looked at."""

    context: Array  # [B] int index, or [B, ...] features for a neural estimator
    action: Array  # [B] int
    reward: Array  # [B]
    duration: Array  # [B] seconds, > 0
    mask: Array  # [B] bool


class RateEstimator(NamedTuple):
    """A rate estimator as a pair of pure functions and a read-out, as in optax.

    ``init() -> state``; ``update(state, batch) -> state``; ``rate(state, rho_k)`` is
    the estimated reward per second of the policy that is greedy at rate rho_k. All
    three work under jit and vmap, and every state has a ``rejected`` count of masked-in
    rows that were refused (NaN, inf, duration <= 0, index out of range).
    """

    init: Callable[[], State]
    update: Callable[[State, Batch], State]
    rate: Callable[[State, Array], Array]


def usable_rows(
    batch: Batch,
    *,
    num_contexts: int | None = None,
    num_arms: int | None = None,
) -> tuple[Array, Array]:
    """Rows that may enter an estimator, and how many asked-for rows may not.

    Args:
      batch: decisions.
      num_contexts: contexts outside [0, num_contexts) are refused; None: no check.
      num_arms: likewise for actions.

    Returns:
      keep [B] bool and rejected, an int32 scalar.
    """
    asked = batch.mask.astype(bool)
    limit = magnitude_limit(batch.reward.dtype)
    fine = (jnp.abs(batch.reward) <= limit) & (batch.duration > 0)
    fine &= batch.duration <= limit
    # JAX drops out-of-range scatters without a word: they are refused here instead.
    if num_contexts is not None:
        fine &= (batch.context >= 0) & (batch.context < num_contexts)
    if num_arms is not None:
        fine &= (batch.action >= 0) & (batch.action < num_arms)
    return asked & fine, jnp.sum(asked & ~fine, dtype=jnp.int32)


def check_unit(*, forgetting: float, quantile: float | None) -> None:
    """Refuse a forgetting factor outside (0, 1] or a quantile level outside (0, 1)."""
    if not 0.0 < forgetting <= 1.0:
        raise ValueError(f"forgetting must be in (0, 1], got {forgetting}")
    if quantile is not None and not 0.0 < quantile < 1.0:
        raise ValueError(f"quantile must be in (0, 1), got {quantile}")


def checked_batch(
    reward: np.ndarray,
    duration: np.ndarray,
    *,
    context: np.ndarray | None = None,
    action: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> Batch:
    """Build a Batch from host data and refuse what an estimator would have to drop.

    Args:
      reward: [B].
      duration: [B] seconds.
      context: [B] int, or [B, ...] features; zeros if None.
      action: [B] int; zeros if None.
      mask: [B] bool; masked-out rows are not checked. All rows if None.

    Raises:
      ValueError: lengths differ, or a counted row has a reward that is not finite or a
        duration that is not finite and positive; the message names the rows.
    """
    reward = np.asarray(reward, np.float64)
    duration = np.asarray(duration, np.float64)
    if reward.ndim != 1 or reward.shape != duration.shape:
        raise ValueError(
            "reward and duration must be one-dimensional and of equal length, got "
            f"{reward.shape} and {duration.shape}"
        )
    size = reward.shape[0]
    mask = np.ones(size, bool) if mask is None else np.asarray(mask, bool)
    context = np.zeros(size, np.int32) if context is None else np.asarray(context)
    action = np.zeros(size, np.int32) if action is None else np.asarray(action)
    for name, value in (("mask", mask), ("context", context), ("action", action)):
        if value.shape[:1] != (size,):
            raise ValueError(f"{name} must have {size} rows, got shape {value.shape}")
    bad = mask & ~np.isfinite(reward)
    if bad.any():
        raise ValueError(f"reward is not finite in rows {_rows(bad)}")
    bad = mask & ~(np.isfinite(duration) & (duration > 0))
    if bad.any():
        raise ValueError(
            f"duration must be finite and > 0 seconds; it is not in rows {_rows(bad)}"
        )
    integer = np.issubdtype(context.dtype, np.integer)
    return Batch(
        context=jnp.asarray(context, jnp.int32 if integer else jnp.zeros(()).dtype),
        action=jnp.asarray(action, jnp.int32),
        reward=jnp.asarray(np.where(mask, reward, 0.0), jnp.zeros(()).dtype),
        duration=jnp.asarray(np.where(mask, duration, 1.0), jnp.zeros(()).dtype),
        mask=jnp.asarray(mask),
    )


def _rows(bad: np.ndarray) -> str:
    rows = np.flatnonzero(bad)
    shown = ", ".join(str(i) for i in rows[:8])
    return f"{shown}, ... ({len(rows)} in all)" if len(rows) > 8 else shown
