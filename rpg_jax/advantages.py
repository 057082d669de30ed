"""Advantages: leave-one-out in groups, generalised estimation along tokens, whitening.

A masked value never enters a sum (``where`` comes first).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rpg_jax import checks
from rpg_jax.tokens import Mask, Tokens, mean_of, tokens_of


class Advantages(NamedTuple):
    """Advantages and the targets a critic regresses to."""

    advantage: Tokens
    target: Tokens


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
      A member that is not finite (or beyond 1e12) counts as masked out, under jit too:
      the others keep their advantages. ``rejected_members`` counts them.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: no axis of members, or reward and mask differ in shape.
    """
    centred, count = _centre(reward, mask)
    return centred * (count / jnp.maximum(count - 1, 1))


def rejected_members(
    reward: Float[Array, "*batch G"], mask: Bool[Array, "*batch G"] | None = None
) -> Int[Array, "*batch"]:
    """Members of each group that ``leave_one_out_advantage`` leaves out, unasked.

    Args:
      reward: [..., G].
      mask: [..., G] members that count.

    Returns:
      [...] number of masked-in members that are not finite or beyond 1e12.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: no axis of members, or reward and mask differ in shape.
    """
    _, asked, usable = _members(reward, mask)
    return jnp.sum(asked & ~usable, axis=-1, dtype=jnp.int32)


def _members(
    reward: Float[Array, "*batch G"], mask: Bool[Array, "*batch G"] | None
) -> tuple[Array, Array, Array]:
    """Rewards, the members asked for and those that can be used."""
    reward = checks.numbers("reward", reward)
    checks.at_least_one_axis("reward", reward)
    if mask is None:
        asked = jnp.ones(reward.shape, bool)
    else:
        asked = checks.flags("mask", mask)
    checks.same_shape("reward and mask", [reward, asked])
    return reward, asked, jnp.abs(reward) <= checks.MAX_VALUE


def _centre(
    reward: Float[Array, "*batch G"], mask: Bool[Array, "*batch G"] | None
) -> tuple[Float[Array, "*batch G"], Float[Array, "*batch 1"]]:
    reward, asked, usable = _members(reward, mask)
    keep = asked & usable
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
      TypeError: an argument is no array of numbers.
      ValueError: shapes differ or a setting is out of range; outside of jit also where
        a counted entry is not finite.

    Source: Schulman et al. (2016).
    """
    reward, value, keep = tokens_of(mask, reward=reward, value=value)
    checks.at_least_one_axis("reward", reward)
    checks.within("reward", reward, mask=keep)
    checks.within("value", value, mask=keep)
    discount = checks.scalar("discount", discount, checks.SHARE)
    trace = checks.scalar("trace", trace, checks.SHARE)
    reward, value = jnp.where(keep, reward, 0), jnp.where(keep, value, 0)
    start = jnp.zeros(reward.shape[:-1], reward.dtype)
    after = start if last_value is None else checks.numbers("last_value", last_value)
    checks.within("last_value", after)
    checks.same_shape("last_value and its rows", [start, after])

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
      TypeError: an argument is no array of numbers.
      ValueError: shapes differ or a setting is out of range; outside of jit also where
        a counted entry is not finite.
    """
    x, keep = tokens_of(mask, values=x)
    checks.within("values", x, mask=keep)
    eps = checks.scalar("eps", eps, (1e-30, checks.MAX_VALUE))
    x = jnp.where(keep, x, 0)
    mean = mean_of(x, keep)
    centred = jnp.where(keep, x - mean, 0)
    # A second pass: the mean's rounding is not variance.
    centred = jnp.where(keep, centred - mean_of(centred, keep), 0)
    scaled = centred * jax.lax.rsqrt(mean_of(centred * centred, keep) + eps)
    return scaled if shift_mean else jnp.where(keep, scaled + mean, 0)
