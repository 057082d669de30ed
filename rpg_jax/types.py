"""Shared types: a batch of decisions and the rate-estimator interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rpg_jax.arrays import as_float, concrete, magnitude_limit

State = Any


class Batch(NamedTuple):
    """B decisions; what stands in rows with a false mask is never looked at.

    Such a row is still a decision, which took place (``niw_slots`` counts them); a row
    of ``padding``, which is masked out too, is none.
    """

    context: Shaped[Array, "B ..."]  # int [B], or features for a neural estimator
    action: Int[Array, " B"]
    reward: Float[Array, " B"]
    duration: Float[Array, " B"]  # seconds, > 0
    mask: Bool[Array, " B"]
    padding: Bool[Array, " B"] | None = None  # no row if None


class RateEstimator(NamedTuple):
    """A rate estimator as a pair of pure functions and a read-out, as in optax.

    ``init() -> state``; ``update(state, batch) -> state``; ``rate(state, rho_k)`` is
    the estimated reward per second of the policy that is greedy at rate rho_k. All
    three work under jit and vmap, and every state has a ``rejected`` count of masked-in
    rows that were refused (NaN, inf, duration <= 0, index out of range). ``needs``
    names the fields of a batch, of ``context`` and ``action``, that it reads: with
    zeros in their place its rate would mean nothing.
    """

    init: Callable[[], State]
    update: Callable[[State, Batch], State]
    rate: Callable[[State, Float[Array, ""]], Float[Array, ""]]
    needs: tuple[str, ...] = ()


def usable_rows(
    batch: Batch,
    *,
    num_contexts: int | None = None,
    num_arms: int | None = None,
    features: bool = False,
) -> tuple[Batch, Bool[Array, " B"], Int[Array, ""]]:
    """Rows that may enter an estimator, and how many asked-for rows may not.

    Args:
      batch: decisions.
      num_contexts: contexts outside [0, num_contexts) are refused; None: no check.
      num_arms: likewise for actions.
      features: contexts that are not finite are refused, and 0 wherever a row is not
        kept: a gradient of 0 times NaN is NaN.

    Returns:
      the batch with its reward and duration in float32 or wider and the indices that
      were checked in int32, keep [B] bool and rejected, an int32 scalar.

    Raises:
      ValueError: an index to check is not of an integer type.
      AssertionError: reward, duration and mask are not [B], or what is read beside
        them has another number of rows.
    """
    reward, duration = as_float(batch.reward), as_float(batch.duration)
    batch = batch._replace(reward=reward, duration=duration)
    asked = batch.mask.astype(bool)
    chex.assert_rank(reward, 1)
    chex.assert_equal_shape([reward, duration, asked])
    fine = jnp.abs(reward) <= magnitude_limit(reward.dtype)
    fine &= (duration > 0) & (duration <= magnitude_limit(duration.dtype))
    # JAX drops out-of-range scatters without a word: they are refused here instead.
    for name, index, number in (
        ("context", batch.context, num_contexts),
        ("action", batch.action, num_arms),
    ):
        if number is None:
            continue
        chex.assert_shape(index, reward.shape)
        if not jnp.issubdtype(index.dtype, jnp.integer):
            raise ValueError(
                f"{name} must be integers in [0, {number}), got {index.dtype}"
            )
        fine &= (index >= 0) & (index < number)
        # Narrow types would wrap where cells are numbered context by context.
        batch = batch._replace(**{name: jnp.asarray(index).astype(jnp.int32)})
    if features:
        context = jnp.asarray(batch.context)
        chex.assert_equal_shape_prefix([context, batch.action, reward], 1)
        finite = jnp.isfinite(context).reshape(context.shape[0], -1)
        fine &= jnp.all(finite, axis=-1)
        rows = (asked & fine).reshape((-1,) + (1,) * (context.ndim - 1))
        context = jnp.where(rows, context, jnp.zeros_like(context))
        batch = batch._replace(context=context)
    return batch, asked & fine, jnp.sum(asked & ~fine, dtype=jnp.int32)


def check_unit(*, forgetting: float, quantile: float | None) -> None:
    """Refuse a forgetting factor outside (0, 1] or a quantile level outside (0, 1)."""
    if not 0.0 < forgetting <= 1.0:
        raise ValueError(f"forgetting must be in (0, 1], got {forgetting}")
    if quantile is not None and not 0.0 < quantile < 1.0:
        raise ValueError(f"quantile must be in (0, 1), got {quantile}")


def checked_weights(
    context_probs: Float[ArrayLike, " contexts"] | None, number: int
) -> Float[Array, " contexts"] | Float[np.ndarray, " contexts"] | None:
    """Weights of contexts as an array; what is traced is taken as it is.

    Raises:
      ValueError: not ``number`` weights, or they are negative, not finite or all 0.
    """
    if context_probs is None:
        return None
    weights = concrete(context_probs)
    if weights is None:
        return jnp.asarray(context_probs)
    weights = np.asarray(weights, jnp.zeros(()).dtype)
    usable = weights.shape == (number,) and bool((weights >= 0).all())
    if not (usable and 0 < weights.sum() < np.inf):
        raise ValueError(
            f"context_probs must be {number} finite weights >= 0 and not all 0, "
            f"got {weights}"
        )
    return weights


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
      ValueError: lengths differ, actions are not integers, or a counted row has a
        reward or context that is not finite, a duration that is not finite and
        positive, or an index that int32 cannot hold; the message names the rows.
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
    return Batch(
        context=jnp.asarray(_narrowed("context", context, mask, features=True)),
        action=jnp.asarray(_narrowed("action", action, mask, features=False)),
        reward=as_float(np.where(mask, reward, 0.0)),
        duration=as_float(np.where(mask, duration, 1.0)),
        mask=jnp.asarray(mask),
    )


def _narrowed(
    name: str, value: np.ndarray, mask: np.ndarray, *, features: bool
) -> np.ndarray:
    """[B, ...] as int32, or features as JAX's float; 0 in masked-out rows."""
    integer = np.issubdtype(value.dtype, np.integer)
    # An empty list has become float64.
    if not (integer or features or value.size == 0):
        raise ValueError(f"{name} must be integers, got {value.dtype}")
    index = integer or not features
    with np.errstate(over="ignore"):
        narrow = value.astype(np.int32 if index else jnp.zeros(()).dtype)
    fine = narrow == value if index else np.isfinite(narrow)
    bad = mask & ~fine.all(axis=tuple(range(1, value.ndim)))
    if bad.any():
        wrong = "outside the range of int32" if index else "not finite"
        raise ValueError(f"{name} is {wrong} in rows {_rows(bad)}")
    rows = mask.reshape(mask.shape + (1,) * (value.ndim - 1))
    return np.where(rows, narrow, np.zeros((), narrow.dtype))


def _rows(bad: np.ndarray) -> str:
    rows = np.flatnonzero(bad)
    shown = ", ".join(str(i) for i in rows[:8])
    return f"{shown}, ... ({len(rows)} in all)" if len(rows) > 8 else shown
