"""Token-level losses and advantages: PPO, clipped values, KL estimators, GAE.

Arrays are [..., T] with a mask that says which tokens the policy chose; prompts,
padding and finished rows are masked out. A masked value never reaches ``exp``
(``where`` comes first), so garbage there, NaN and inf included, touches neither a loss
nor a gradient.
Sums are divided by the number of counted tokens or, with ``normalizer``, by a constant:
dividing each sequence by its own length would favour long wrong answers and short right
ones (Liu et al. 2025, "Understanding R1-Zero-like training").
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rpg_jax import checks
from rpg_jax.advantages import (
    Advantages,
    gae,
    leave_one_out_advantage,
    rejected_members,
    whiten,
)
from rpg_jax.tokens import (
    Mask,
    Tokens,
    divisor_of,
    masked_mean,
    masked_sum,
    mean_of,
    tokens_of,
)

__all__ = [
    "Advantages",
    "PPOInfo",
    "gae",
    "kl_estimate",
    "leave_one_out_advantage",
    "masked_mean",
    "masked_sum",
    "ppo_clip_loss",
    "rejected_members",
    "value_clip_loss",
    "whiten",
]


# exp(20) = 4.9e8: far outside any trust region, still far from overflow.
MAX_LOG_RATIO = 20.0

CLIPS = (0.0, 1e6)


class PPOInfo(NamedTuple):
    """Diagnostics of a policy step; all are scalars over the counted tokens."""

    clip_fraction: Float[Array, ""]  # of tokens whose clipped branch was the smaller
    approx_kl: Float[Array, ""]  # k3 estimate of KL(old || new), nats per token
    ratio_mean: Float[Array, ""]
    ratio_max: Float[Array, ""]
    nonfinite: Int[Array, ""]  # masked-in tokens left out: an input was NaN or inf


def _k3(log_ratio: Tokens) -> Tokens:
    """exp(-x) - 1 + x, by its series near 0 where the closed form cancels."""
    x = log_ratio
    near = jnp.abs(x) < 0.05
    # Both branches stay finite, so the unused one adds 0 to a gradient and not 0 * inf.
    far = jnp.where(near, 1, x)
    # Beyond -20 the exponential goes on as its tangent: finite, and still a pull back.
    bent = jnp.maximum(far, -MAX_LOG_RATIO)
    over = jnp.minimum(far + MAX_LOG_RATIO, 0)
    beyond = -math.exp(MAX_LOG_RATIO) * over
    x = jnp.where(near, x, 0)
    series = x * x * (1 / 2 - x * (1 / 6 - x * (1 / 24 - x * (1 / 120 - x / 720))))
    return jnp.where(near, series, jnp.expm1(-bent) + beyond + far)


def kl_estimate(
    log_prob: Tokens,
    ref_log_prob: Tokens,
    mask: Mask,
    *,
    kind: Literal["k1", "k2", "k3"] = "k3",
) -> Tokens:
    """Per-token estimate of KL(policy || reference) from the policy's own samples.

    With x = log pi - log pi_ref: k1 = x (unbiased, signed), k2 = x^2 / 2 (biased, its
    gradient is that of the KL), k3 = exp(-x) - 1 + x (unbiased, >= 0, low variance).

    Args:
      log_prob: [..., T] nats under the policy.
      ref_log_prob: [..., T] nats under the reference.
      mask: [..., T].
      kind: estimator.

    Returns:
      [..., T] nats; 0 where masked out.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: unknown kind, or shapes differ; outside of jit also where a counted
        entry is not finite.

    Source: Schulman (2020), "Approximating KL divergence".
    """
    log_prob, ref_log_prob, mask = tokens_of(
        mask, log_prob=log_prob, ref_log_prob=ref_log_prob
    )
    checks.within("log_prob", log_prob, mask=mask)
    checks.within("ref_log_prob", ref_log_prob, mask=mask)
    x = jnp.where(mask, log_prob - ref_log_prob, 0)
    if kind == "k1":
        return x
    if kind == "k2":
        return x * x / 2
    if kind == "k3":
        return _k3(x)
    raise ValueError(f"kind must be k1, k2 or k3, got {kind!r}")


def ppo_clip_loss(
    log_prob: Tokens,
    old_log_prob: Tokens,
    advantage: Tokens | Float[Array, "*batch 1"],
    mask: Mask,
    *,
    clip_eps: float = 0.2,
    clip_eps_high: float | None = None,
    normalizer: Float[Array, ""] | float | None = None,
) -> tuple[Float[Array, ""], PPOInfo]:
    """Clipped surrogate: -sum min(w A, clip(w, 1 - eps, 1 + eps) A) / normalizer.

    w = exp(log_prob - old_log_prob). Gradients flow through ``log_prob`` alone.

    Args:
      log_prob: [..., T] nats under the policy being trained.
      old_log_prob: [..., T] nats under the policy that sampled.
      advantage: [..., T], or [..., 1] for one advantage per sequence.
      mask: [..., T] true on tokens that count.
      clip_eps: the ratio is clipped to [1 - clip_eps, 1 + clip_eps].
      clip_eps_high: another bound above 1 ("clip higher"); clip_eps if None.
      normalizer: constant divisor (rows * maximum length); the mask's sum if None.

    Returns:
      Scalar loss and ``PPOInfo``. Tokens that are not finite (or an advantage beyond
      1e12) are left out and counted there, under jit too: stop on them.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: shapes do not fit, or a setting is out of range.

    Source: Schulman et al. (2017); the paper's step from NPG to PPO.
    """
    log_prob, old_log_prob, asked = tokens_of(
        mask, log_prob=log_prob, old_log_prob=old_log_prob
    )
    clip_eps, high = _clips(clip_eps, clip_eps_high)
    normalizer = divisor_of(normalizer)
    advantage = jax.lax.stop_gradient(_broadcast(advantage, log_prob.shape))
    difference = log_prob - jax.lax.stop_gradient(old_log_prob)
    keep = asked & jnp.isfinite(difference)
    keep &= jnp.abs(advantage) <= checks.MAX_VALUE
    advantage = jnp.where(keep, advantage, 0)
    log_ratio = jnp.clip(jnp.where(keep, difference, 0), -MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = jnp.exp(log_ratio)
    free = ratio * advantage
    clipped = jnp.clip(ratio, 1 - clip_eps, 1 + high) * advantage
    loss = -mean_of(jnp.minimum(free, clipped), keep, normalizer)
    info = PPOInfo(
        clip_fraction=mean_of((clipped < free).astype(ratio.dtype), keep),
        approx_kl=mean_of(_k3(-log_ratio), keep),
        ratio_mean=mean_of(ratio, keep),
        ratio_max=jnp.max(jnp.where(keep, ratio, 0), initial=0),
        nonfinite=jnp.sum(asked & ~keep, dtype=jnp.int32),
    )
    return loss, jax.lax.stop_gradient(info)


def _clips(low: float, high: float | None) -> tuple[float, float]:
    low = checks.scalar("clip_eps", low, CLIPS)
    return low, low if high is None else checks.scalar("clip_eps_high", high, CLIPS)


def _broadcast(advantage: Array, shape: tuple[int, ...]) -> Array:
    advantage = checks.numbers("advantage", advantage)
    if advantage.shape not in (shape, (*shape[:-1], 1)):
        raise ValueError(
            f"advantage must be of shape {shape} or {(*shape[:-1], 1)}, got "
            f"{advantage.shape}"
        )
    return jnp.broadcast_to(advantage, shape)


def value_clip_loss(
    value: Tokens,
    old_value: Tokens,
    target: Tokens,
    mask: Mask,
    *,
    clip_eps: float = 0.5,
    normalizer: Float[Array, ""] | float | None = None,
) -> Float[Array, ""]:
    """Pessimistic value loss: mean of max((v - R)^2, (v_clip - R)^2) / 2.

    v_clip = old + clip(v - old, -eps, eps). Gradients flow through ``value`` alone.

    Args:
      value: [..., T] the critic's present values.
      old_value: [..., T] its values when the batch was sampled.
      target: [..., T] returns, e.g. ``gae(...).target``.
      mask: [..., T].
      clip_eps: how far a value may move per batch, in units of the return.
      normalizer: constant divisor; the mask's sum if None.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: shapes differ or a setting is out of range; outside of jit also where
        a counted entry is not finite.
    """
    value, old_value, target, keep = tokens_of(
        mask, value=value, old_value=old_value, target=target
    )
    for name, given in (("value", value), ("old", old_value), ("target", target)):
        checks.within(name, given, mask=keep)
    clip_eps = checks.scalar("clip_eps", clip_eps, CLIPS)
    value = jnp.where(keep, value, 0)
    old = jax.lax.stop_gradient(jnp.where(keep, old_value, 0))
    target = jax.lax.stop_gradient(jnp.where(keep, target, 0))
    near = old + jnp.clip(value - old, -clip_eps, clip_eps)
    worst = jnp.maximum(jnp.square(value - target), jnp.square(near - target))
    return mean_of(worst, keep, divisor_of(normalizer)) / 2
