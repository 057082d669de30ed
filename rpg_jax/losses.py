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

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rpg_jax.arrays import float_info

Tokens = Float[Array, "*batch T"]
Mask = Bool[Array, "*batch T"]

# exp(20) = 4.9e8: far outside any trust region, still far from overflow.
MAX_LOG_RATIO = 20.0


class PPOInfo(NamedTuple):
    """Diagnostics of a policy step; all are scalars over the counted tokens."""

    clip_fraction: Float[Array, ""]  # of tokens whose clipped branch was the smaller
    approx_kl: Float[Array, ""]  # k3 estimate of KL(old || new), nats per token
    ratio_mean: Float[Array, ""]
    ratio_max: Float[Array, ""]
    nonfinite: Int[Array, ""]  # masked-in tokens left out: an input was NaN or inf


class Advantages(NamedTuple):
    """Advantages and the targets a critic regresses to."""

    advantage: Tokens
    target: Tokens


def _float(x: Array) -> Array:
    """At least float32: bfloat16 keeps 3 digits of a log-probability."""
    x = jnp.asarray(x)
    wide = jnp.issubdtype(x.dtype, jnp.floating) and float_info(x.dtype).bits >= 32
    return x if wide else x.astype(jnp.float32)


def masked_sum(
    x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]
) -> Float[Array, ""]:
    """Sum of the masked-in entries; masked-out ones may be NaN."""
    return jnp.sum(jnp.where(mask.astype(bool), x, 0))


def masked_mean(
    x: Float[Array, "*shape"],
    mask: Bool[Array, "*shape"],
    *,
    normalizer: Float[Array, ""] | float | None = None,
) -> Float[Array, ""]:
    """Masked sum over ``normalizer``, or over the number of masked-in entries.

    Args:
      x: values, any shape.
      mask: same shape.
      normalizer: constant divisor, e.g. rows * maximum length; None for the mask's sum
        (then an empty mask gives 0).
    """
    total = masked_sum(x, mask)
    if normalizer is None:
        return total / jnp.maximum(jnp.sum(mask.astype(bool), dtype=total.dtype), 1)
    return total / normalizer


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
      ValueError: unknown kind.
      AssertionError: shapes differ.

    Source: Schulman (2020), "Approximating KL divergence".
    """
    chex.assert_equal_shape([log_prob, ref_log_prob, mask])
    x = jnp.where(mask.astype(bool), _float(log_prob) - _float(ref_log_prob), 0)
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
      Scalar loss and ``PPOInfo``.

    Raises:
      AssertionError: shapes do not fit.

    Source: Schulman et al. (2017); the paper's step from NPG to PPO.
    """
    chex.assert_equal_shape([log_prob, old_log_prob, mask])
    chex.assert_is_broadcastable(advantage.shape, log_prob.shape)
    high = clip_eps if clip_eps_high is None else clip_eps_high
    log_prob = _float(log_prob)
    advantage = jax.lax.stop_gradient(
        jnp.broadcast_to(_float(advantage), log_prob.shape)
    )
    difference = log_prob - jax.lax.stop_gradient(_float(old_log_prob))
    asked = mask.astype(bool)
    keep = asked & jnp.isfinite(difference) & jnp.isfinite(advantage)
    advantage = jnp.where(keep, advantage, 0)
    log_ratio = jnp.clip(jnp.where(keep, difference, 0), -MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = jnp.exp(log_ratio)
    free = ratio * advantage
    clipped = jnp.clip(ratio, 1 - clip_eps, 1 + high) * advantage
    loss = -masked_mean(jnp.minimum(free, clipped), keep, normalizer=normalizer)
    info = PPOInfo(
        clip_fraction=masked_mean((clipped < free).astype(ratio.dtype), keep),
        approx_kl=masked_mean(_k3(-log_ratio), keep),
        ratio_mean=masked_mean(ratio, keep),
        ratio_max=jnp.max(jnp.where(keep, ratio, 0), initial=0),
        nonfinite=jnp.sum(asked & ~keep, dtype=jnp.int32),
    )
    return loss, jax.lax.stop_gradient(info)


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
      AssertionError: shapes differ.
    """
    chex.assert_equal_shape([value, old_value, target, mask])
    keep = mask.astype(bool)
    value = jnp.where(keep, _float(value), 0)
    old = jax.lax.stop_gradient(jnp.where(keep, _float(old_value), 0))
    target = jax.lax.stop_gradient(jnp.where(keep, _float(target), 0))
    near = old + jnp.clip(value - old, -clip_eps, clip_eps)
    worst = jnp.maximum(jnp.square(value - target), jnp.square(near - target))
    return masked_mean(worst, keep, normalizer=normalizer) / 2


def leave_one_out_advantage(
    reward: Float[Array, "*batch G"], mask: Bool[Array, "*batch G"] | None = None
) -> Float[Array, "*batch G"]:
    """Reward minus the mean of the *other* members of its group.

    A_i = r_i - sum_{j != i} r_j / (n - 1): an unbiased baseline (Kool et al. 2019).

    Args:
      reward: [..., G] (relative) rewards of the group that shares a prompt.
      mask: [..., G] members that count.

    Returns:
      [..., G]; 0 for masked-out members and for a group of one, which has no baseline.

    Raises:
      AssertionError: reward and mask differ in shape.
    """
    centred, count = _centre(reward, mask)
    return centred * (count / jnp.maximum(count - 1, 1))


def _centre(
    reward: Float[Array, "*batch G"], mask: Bool[Array, "*batch G"] | None
) -> tuple[Float[Array, "*batch G"], Float[Array, "*batch 1"]]:
    reward = _float(reward)
    keep = jnp.ones(reward.shape, bool) if mask is None else mask.astype(bool)
    chex.assert_equal_shape([reward, keep])
    reward = jnp.where(keep, reward, 0)
    count = jnp.sum(keep, axis=-1, keepdims=True, dtype=reward.dtype)
    members = jnp.maximum(count, 1)
    centred = reward
    # Twice: the rounding of the first mean is no advantage.
    for _ in range(2):
        mean = jnp.sum(centred, axis=-1, keepdims=True) / members
        centred = jnp.where(keep, centred - mean, 0)
    return centred, count


def gae(
    reward: Tokens,
    value: Tokens,
    mask: Mask,
    *,
    discount: float = 1.0,
    trace: float = 1.0,
    last_value: Float[Array, "*batch"] | None = None,
) -> Advantages:
    """Generalised advantage estimation along the last axis.

    A_t = e_t + discount * trace * A_{t+1}, e_t = r_t + discount V_{t+1} - V_t.
    Masked-out tokens are stepped over as if they were not there, wherever they are.

    Args:
      reward: [..., T] reward per token.
      value: [..., T] V of the state before each token.
      mask: [..., T].
      discount: gamma, per token.
      trace: lambda.
      last_value: [...] value after the last counted token; 0 (episode over) if None.

    Returns:
      ``Advantages`` with target = advantage + value; both 0 where masked out.

    Raises:
      AssertionError: shapes differ.

    Source: Schulman et al. (2016).
    """
    chex.assert_equal_shape([reward, value, mask])
    keep = mask.astype(bool)
    reward = jnp.where(keep, _float(reward), 0)
    value = jnp.where(keep, _float(value), 0)
    start = jnp.zeros(reward.shape[:-1], reward.dtype)
    after = start if last_value is None else _float(last_value)
    chex.assert_equal_shape([start, after])

    def step(
        carry: tuple[Array, Array], token: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], Array]:
        next_advantage, next_value = carry
        r, v, m = token
        advantage = r + discount * next_value - v + discount * trace * next_advantage
        carry = (
            jnp.where(m, advantage, next_advantage),
            jnp.where(m, v, next_value),
        )
        return carry, jnp.where(m, advantage, 0)

    tokens = tuple(jnp.moveaxis(x, -1, 0) for x in (reward, value, keep))
    _, advantage = jax.lax.scan(step, (start, after), tokens, reverse=True)
    advantage = jnp.moveaxis(advantage, 0, -1)
    return Advantages(advantage, jnp.where(keep, advantage + value, 0))


def whiten(
    x: Float[Array, "*shape"],
    mask: Bool[Array, "*shape"],
    *,
    shift_mean: bool = True,
    eps: float = 1e-8,
) -> Float[Array, "*shape"]:
    """Masked values at zero mean and unit variance over all masked-in entries.

    Args:
      x: values, any shape.
      mask: same shape.
      shift_mean: false keeps the mean and only rescales.
      eps: added to the variance.

    Returns:
      Same shape; 0 where masked out. Equal values give 0, not noise.

    Raises:
      AssertionError: shapes differ.
    """
    chex.assert_equal_shape([x, mask])
    keep = mask.astype(bool)
    x = jnp.where(keep, _float(x), 0)
    mean = masked_mean(x, keep)
    centred = jnp.where(keep, x - mean, 0)
    # A second pass: the mean's rounding is not variance.
    centred = jnp.where(keep, centred - masked_mean(centred, keep), 0)
    scaled = centred * jax.lax.rsqrt(masked_mean(centred * centred, keep) + eps)
    return scaled if shift_mean else jnp.where(keep, scaled + mean, 0)
