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

    Source: the paper, "Key idea".
    """
    if any(isinstance(x, jax.Array) for x in (reward, duration, rate)):
        rate = jax.lax.stop_gradient(rate)
    return reward - rate * duration


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
      ValueError: unknown charge, or a missing limit.
    """
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


def _namespace(*arrays: Any) -> ModuleType:
    """JAX's functions where there is a JAX array, NumPy's where there is none."""
    return jnp if any(isinstance(x, jax.Array) for x in arrays) else np
