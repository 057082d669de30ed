"""Shared types: a batch of decisions and the rate-estimator interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rpg_jax import checks
from rpg_jax.arrays import as_float, concrete
from rpg_jax.checks import MAX_SECONDS, MAX_VALUE, MIN_SECONDS

State = Any

# Context and action of a row that has none: no estimator that reads them takes it.
MISSING = -1


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
      TypeError: no ``Batch``, or a field of a wrong type.
      ValueError: reward, duration and mask are not [B], or what is read beside them has
        another number of rows, or is not of an integer type where it must be.
    """
    if not isinstance(batch, Batch):
        raise TypeError(f"want a Batch, got {type(batch).__name__}")
    reward = checks.numbers("reward", batch.reward)
    duration = checks.numbers("duration", batch.duration)
    batch = batch._replace(reward=reward, duration=duration)
    asked = checks.flags("mask", batch.mask)
    checks.rank("reward", reward, 1)
    checks.same_shape("reward, duration and mask", [reward, duration, asked])
    fine = jnp.abs(reward) <= MAX_VALUE
    fine &= (duration >= MIN_SECONDS) & (duration <= MAX_SECONDS)
    if num_contexts is not None:
        context, inside = _usable_index("context", batch.context, reward, num_contexts)
        batch, fine = batch._replace(context=context), fine & inside
    if num_arms is not None:
        action, inside = _usable_index("action", batch.action, reward, num_arms)
        batch, fine = batch._replace(action=action), fine & inside
    if features:
        finite = _usable_features(batch)
        fine &= finite
        context = jnp.asarray(batch.context)
        rows = (asked & fine).reshape((-1,) + (1,) * (context.ndim - 1))
        context = jnp.where(rows, context, jnp.zeros_like(context))
        batch = batch._replace(context=context)
    return batch, asked & fine, jnp.sum(asked & ~fine, dtype=jnp.int32)


def _usable_index(
    name: str, index: Array, reward: Array, number: int
) -> tuple[Int[Array, " B"], Bool[Array, " B"]]:
    """An index in int32, and the rows in which it is inside [0, number)."""
    index = jnp.asarray(checks.real(name, index))
    if index.shape != reward.shape:
        raise ValueError(f"{name} must have shape {reward.shape}, got {index.shape}")
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(f"{name} must be integers in [0, {number}), got {index.dtype}")
    # Where there is but one, a row need not name it.
    unnamed = (index == MISSING) & (number == 1)
    # JAX drops out-of-range scatters without a word: they are refused here instead.
    inside = unnamed | ((index >= 0) & (index < number))
    # Narrow types would wrap where cells are numbered context by context.
    return jnp.where(unnamed, 0, index.astype(jnp.int32)), inside


def _usable_features(batch: Batch) -> Bool[Array, " B"]:
    """Rows whose context is finite, or the number of one."""
    context = jnp.asarray(checks.real("context", batch.context))
    if context.shape[:1] != batch.reward.shape:
        raise ValueError(
            f"context must have {batch.reward.shape[0]} rows, got shape {context.shape}"
        )
    if jnp.issubdtype(context.dtype, jnp.floating):
        finite = jnp.abs(context) <= MAX_VALUE
    else:
        finite = context >= 0  # a row without a context is not of the first one
    return jnp.all(finite.reshape(context.shape[0], -1), axis=-1)


def check_unit(*, forgetting: float, quantile: float | None) -> None:
    """Refuse a forgetting factor outside (0, 1] or a quantile level outside (0, 1)."""
    checks.scalar("forgetting", forgetting)
    if quantile is not None:
        checks.scalar("quantile", quantile)
    if not 0.0 < forgetting <= 1.0:
        raise ValueError(f"forgetting must be in (0, 1], got {forgetting}")
    if quantile is not None and not 0.0 < quantile < 1.0:
        raise ValueError(f"quantile must be in (0, 1), got {quantile}")


def checked_weights(
    context_probs: Float[ArrayLike, " contexts"] | None, number: int
) -> Float[Array, " contexts"] | Float[np.ndarray, " contexts"] | None:
    """Weights of contexts as an array; what is traced is taken as it is.

    Raises:
      TypeError: they are no array of numbers.
      ValueError: not ``number`` weights, or they are negative, not finite or all 0.
    """
    if context_probs is None:
        return None
    checks.weights("context_probs", context_probs, number)
    weights = concrete(context_probs)
    if weights is None:
        return jnp.asarray(context_probs)
    return np.asarray(weights, jnp.zeros(()).dtype)


def checked_batch(
    reward: np.ndarray,
    duration: np.ndarray,
    *,
    context: np.ndarray | None = None,
    action: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    needs: tuple[str, ...] = (),
) -> Batch:
    """Build a Batch from host data and refuse what an estimator would have to drop.

    Args:
      reward: [B], at most 1e12 in size.
      duration: [B] seconds, from 1e-9 to 1e10.
      context: [B] int, or [B, ...] features. None stands for no context, -1: an
        estimator of several contexts refuses such rows and counts them.
      action: [B] int; None likewise.
      mask: [B] bool; masked-out rows are not checked. All rows if None.
      needs: fields that must be given, such as ``estimator.needs``.

    Raises:
      TypeError: the data are no numbers.
      ValueError: lengths differ, actions are not integers, a field that is needed is
        not given, or a counted row has a reward, a context or a duration that is not
        finite or out of bounds, or an index that int32 cannot hold; the message names
        the rows.
    """
    given = {"context": context, "action": action}
    missing = [name for name in needs if given.get(name, name) is None]
    if missing:
        raise ValueError(f"this estimator needs {' and '.join(missing)} for every row")
    reward, duration, mask = checked_rows(reward, duration, mask=mask)
    size = reward.shape[0]
    context = _missing(size) if context is None else np.asarray(context)
    action = _missing(size) if action is None else np.asarray(action)
    for name, value in (("context", context), ("action", action)):
        if value.shape[:1] != (size,):
            raise ValueError(f"{name} must have {size} rows, got shape {value.shape}")
    return Batch(
        context=jnp.asarray(_narrowed("context", context, mask, features=True)),
        action=jnp.asarray(_narrowed("action", action, mask, features=False)),
        reward=as_float(np.where(mask, reward, 0.0)),
        duration=as_float(np.where(mask, duration, 1.0)),
        mask=jnp.asarray(mask),
    )


def checked_rows(
    reward: np.ndarray, duration: np.ndarray, *, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards and seconds in float64 and the mask, checked; no JAX backend starts.

    Args and Raises: see ``checked_batch``.
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
    if mask.shape[:1] != (size,):
        raise ValueError(f"mask must have {size} rows, got shape {mask.shape}")
    _check_bounds(reward, duration, mask)
    return reward, duration, mask


def _check_bounds(reward: np.ndarray, duration: np.ndarray, mask: np.ndarray) -> None:
    """Refuse counted rows that float32 or a clock cannot have, and name them."""
    bad = mask & ~np.isfinite(reward)
    if bad.any():
        raise ValueError(f"reward is not finite in rows {_rows(bad)}")
    bad = mask & ~(np.isfinite(duration) & (duration > 0))
    if bad.any():
        raise ValueError(
            f"duration must be finite and > 0 seconds; it is not in rows {_rows(bad)}"
        )
    bad = mask & ~(np.abs(reward) <= MAX_VALUE)
    if bad.any():
        raise ValueError(
            f"reward must be at most {MAX_VALUE:g} in size; it is not in rows "
            + _rows(bad)
        )
    bad = mask & ~((duration >= MIN_SECONDS) & (duration <= MAX_SECONDS))
    if bad.any():
        raise ValueError(
            f"duration must be in [{MIN_SECONDS:g}, {MAX_SECONDS:g}] seconds; it is "
            f"not in rows {_rows(bad)}"
        )


def _missing(size: int) -> np.ndarray:
    return np.full(size, MISSING, np.int32)


def _narrowed(
    name: str, value: np.ndarray, mask: np.ndarray, *, features: bool
) -> np.ndarray:
    """[B, ...] as int32, or features as JAX's float; 0 in masked-out rows."""
    integer = np.issubdtype(value.dtype, np.integer)
    # An empty list has become float64.
    if not (integer or features or value.size == 0):
        raise ValueError(f"{name} must be integers, got {value.dtype}")
    if not (integer or np.issubdtype(value.dtype, np.floating)):
        raise TypeError(f"{name} must be numbers, got {value.dtype}")
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
