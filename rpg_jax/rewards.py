"""Rewards in units that a rate can price: gains >= 0, failures, relative rewards.

A rate needs a zero. If waiting earns 0, every reward has to be a gain over doing
nothing: with r = -loss the rate is negative and slow actions are *paid* for their time.
"""

from typing import Literal

import jax
import jax.numpy as jnp

Array = jax.Array


def relative_reward(reward: Array, duration: Array, rate: Array) -> Array:
    """Reward minus the price of the time it took: r - stop_gradient(rho) * delta.

    Args:
      reward: [...].
      duration: [...] seconds.
      rate: reward per second; a scalar, or the shape of ``duration``.

    Source: the paper, "Key idea".
    """
    return reward - jax.lax.stop_gradient(rate) * duration


def oriented(score: Array, *, higher_is_better: bool) -> Array:
    """The score with its sign turned so that larger is better."""
    return score if higher_is_better else -score


def gain(
    score: Array,
    baseline: Array | float,
    perfect: Array | float,
    *,
    higher_is_better: bool,
) -> Array:
    """Share of the way from a baseline to a perfect score, at least 0, without a cap.

    (s - b)_+ / (s_perfect - b) where higher is better, (b - s)_+ / (b - s_perfect)
    where lower is. The baseline itself, what doing nothing scores, earns exactly 0.

    Args:
      score: [...] metric of the attempt.
      baseline: metric of the task's sample submission.
      perfect: best metric there is; a score beyond it has a gain above 1.
      higher_is_better: orientation of the metric.

    Returns:
      [...] gain >= 0; 0 where the score or the baseline is NaN or infinite, where
      ``perfect`` is NaN or infinite, and where it is no better than the baseline.
    """
    above = oriented(score, higher_is_better=higher_is_better) - oriented(
        baseline, higher_is_better=higher_is_better
    )
    room = oriented(perfect, higher_is_better=higher_is_better) - oriented(
        baseline, higher_is_better=higher_is_better
    )
    usable = jnp.isfinite(above) & (room > 0)
    return jnp.where(
        usable, jnp.maximum(jnp.where(usable, above, 0), 0), 0
    ) / jnp.where(room > 0, room, 1)


def failure_reward(reward: Array, failed: Array, *, penalty: float = 0.0) -> Array:
    """Reward where the attempt worked, -penalty where it failed.

    Args:
      reward: [...]; may be NaN where ``failed``.
      failed: [...] bool.
      penalty: >= 0, in units of reward.
    """
    return jnp.where(failed, -penalty, reward)


def charged_duration(
    duration: Array,
    failed: Array,
    *,
    charge: Literal["measured", "slowest", "limit"] = "slowest",
    limit: float | None = None,
) -> Array:
    """Seconds that an attempt is charged for in its relative reward.

    An instant crash has a relative reward near 0 and so outranks every valid attempt
    that earned less than its time cost. Charging a failure for the slowest valid
    attempt of its batch takes that away. Estimators and clocks keep measured seconds.

    Args:
      duration: [B] measured seconds.
      failed: [B] bool.
      charge: ``measured`` seconds; the larger of those and the ``slowest`` valid
        attempt; or the larger of those and the time ``limit``.
      limit: seconds, needed for ``limit``.

    Raises:
      ValueError: unknown charge, or a missing limit.
    """
    if charge == "measured":
        return duration
    if charge == "slowest":
        slowest = jnp.max(jnp.where(failed, 0, duration), axis=-1, keepdims=True)
        return jnp.where(failed, jnp.maximum(duration, slowest), duration)
    if charge != "limit":
        raise ValueError(f"charge must be measured, slowest or limit, got {charge!r}")
    if limit is None:
        raise ValueError("charge='limit' needs limit, the attempt's time limit in s")
    return jnp.where(failed, jnp.maximum(duration, limit), duration)
