"""Relative rewards: what an attempt earned, less the price of the time it took.

Both functions take NumPy or JAX arrays and return the same kind. The training loop
accounts in float64 on the host and calls the very functions that run under jit.
A rate needs a zero. If waiting earns 0, every reward has to be a gain over doing
nothing: with r = -loss the rate is negative and slow actions are *paid* for their time.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from rpg_jax import checks
from rpg_jax.arrays import concrete

T = TypeVar("T", Array, np.ndarray)
Charge = Literal["measured", "slowest", "limit"]


def relative_reward(
    reward: Float[T, "*batch"],
    duration: Float[T, "*batch"],
    rate: float | Float[T, "*batch"],
) -> Float[T, "*batch"]:
    """Reward minus the price of the time it took: r - stop_gradient(rho) * delta.

    Args:
      reward: [...], NumPy or JAX.
      duration: [...] seconds.
      rate: reward per second; a scalar, or the shape of ``duration``.

    Returns:
      [...], of the arguments' kind and precision: NumPy's operations on NumPy arrays.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: shapes do not fit; outside of jit also where a result is not finite.

    Source: the paper, "Key idea".
    """
    reward, duration = _listed("reward", reward), _listed("duration", duration)
    rate = _listed("rate", rate)
    if np.shape(duration) != np.shape(reward) or (
        np.shape(rate) not in ((), np.shape(duration))
    ):
        shapes = [np.shape(v) for v in (reward, duration, rate)]
        raise ValueError(f"reward, duration and rate do not fit: {shapes}")
    if any(isinstance(x, jax.Array) for x in (reward, duration, rate)):
        rate = jax.lax.stop_gradient(rate)
    with np.errstate(over="ignore", invalid="ignore"):
        relative: T = reward - rate * duration
    known = concrete(relative)
    if known is not None and not np.isfinite(known).all():
        raise ValueError("a reward, a duration or the rate is too large or not finite")
    return relative


def charged_duration(
    duration: Float[T, "*batch attempts"],
    failed: Bool[T, "*batch attempts"],
    *,
    charge: Charge = "slowest",
    limit: float | None = None,
) -> Float[T, "*batch attempts"]:
    """Seconds that an attempt is charged for in its relative reward.

    An instant crash has a relative reward near 0 and so outranks every valid attempt
    that earned less than its time cost. Charging a failure for the slowest valid
    attempt of its batch takes that away. Estimators and clocks keep measured seconds.

    Args:
      duration: [..., B] measured seconds, NumPy or JAX.
      failed: [..., B] bool.
      charge: ``measured`` seconds; the larger of those and the ``slowest`` valid
        attempt; or the larger of those and the time ``limit``.
      limit: seconds, needed for ``limit``.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: unknown charge, a missing limit, or shapes that differ; outside of jit
        also seconds that are not finite or below 0.
    """
    _check_seconds(duration, failed, limit)
    if not isinstance(duration, jax.Array):
        duration = np.asarray(duration)
    if charge == "measured":
        return duration
    xp = _namespace(duration, failed)
    floor: Any
    if charge == "slowest":
        valid = xp.where(failed, 0, duration)
        floor = xp.max(valid, axis=-1, keepdims=True, initial=0)
    elif charge != "limit":
        raise ValueError(f"charge must be measured, slowest or limit, got {charge!r}")
    elif limit is None:
        raise ValueError("charge='limit' needs limit, the attempt's time limit in s")
    else:
        floor = limit
    charged: T = xp.where(failed, xp.maximum(duration, floor), duration)
    return charged


def _listed(name: str, value: Any) -> Any:
    """An array for a list; what is a number or an array keeps its kind and type."""
    array = checks.real(name, value)
    return array if isinstance(value, list | tuple) else value


def _check_seconds(duration: Any, failed: Any, limit: Any) -> None:
    """Refuse what has no charge, NaN among it: a maximum would spread it."""
    shape = np.shape(checks.real("duration", duration))
    failed = checks.real("failed", failed)
    if not shape or np.shape(failed) != shape:
        raise ValueError(
            f"duration and failed must be of one shape [..., B], got {shape} and "
            f"{np.shape(failed)}"
        )
    checks.within("failed", failed)
    checks.within("duration", duration, (0.0, checks.MAX_VALUE))
    if limit is not None:
        checks.scalar("limit", limit, (0.0, checks.MAX_VALUE))


def _namespace(*arrays: Any) -> ModuleType:
    """JAX's functions where there is a JAX array, NumPy's where there is none."""
    return jnp if any(isinstance(x, jax.Array) for x in arrays) else np
