"""Fixed-size buffer of past attempts that is ranked anew at the present rate.

A ring of arrays: ``add`` overwrites the oldest attempts once it is full. Scores are not
stored: reward and duration are, so ``top_k`` ranks by reward - rate * duration at the
rate of the moment. Works under jit: shapes never change.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rpg_jax.arrays import as_float, magnitude_limit
from rpg_jax.rewards import relative_reward

Array = jax.Array


class Buffer(NamedTuple):
    """C attempts and where the next one goes."""

    items: Any  # pytree of [C, ...]
    reward: Array  # [C]
    duration: Array  # [C] seconds
    size: Array  # int32; attempts held, <= C
    cursor: Array  # int32; slot of the next attempt
    rejected: Array  # int32; attempts refused: not finite, or duration <= 0


class TopK(NamedTuple):
    """The k best attempts, best first."""

    items: Any  # pytree of [k, ...]
    index: Array  # [k] int32 slot in the buffer
    score: Array  # [k] reward - rate * duration; -inf where not valid
    valid: Array  # [k] bool


def init(capacity: int, item: Any, *, dtype: jnp.dtype | None = None) -> Buffer:
    """Empty buffer for attempts shaped like ``item``, a pytree of arrays or scalars.

    Raises:
      ValueError: capacity < 1.
    """
    if capacity < 1:
        raise ValueError(f"capacity must be at least 1, got {capacity}")

    def zeros(leaf):
        leaf = jnp.asarray(leaf)
        return jnp.zeros((capacity, *leaf.shape), leaf.dtype)

    return Buffer(
        items=jax.tree.map(zeros, item),
        reward=jnp.zeros(capacity, dtype),
        duration=jnp.ones(capacity, dtype),
        size=jnp.zeros((), jnp.int32),
        cursor=jnp.zeros((), jnp.int32),
        rejected=jnp.zeros((), jnp.int32),
    )


def add(
    buffer: Buffer,
    items: Any,
    reward: Array,
    duration: Array,
    mask: Array | None = None,
) -> Buffer:
    """Add the masked attempts of a batch in order; the oldest make room.

    Args:
      buffer: state.
      items: pytree of [B, ...].
      reward: [B].
      duration: [B] seconds, > 0.
      mask: [B] bool; all if None. Of more than C attempts the last C are kept.
    """
    capacity = buffer.reward.shape[0]
    held = buffer.reward.dtype
    reward, duration = as_float(reward, held), as_float(duration, held)
    asked = jnp.ones(reward.shape, bool) if mask is None else mask.astype(bool)
    limit = magnitude_limit(reward.dtype)
    usable = (jnp.abs(reward) <= limit) & (duration > 0) & (duration <= limit)
    # A buffer of half precision holds less than the limit.
    usable &= jnp.isfinite(reward.astype(held)) & jnp.isfinite(duration.astype(held))
    keep = asked & usable
    rank = jnp.cumsum(keep, dtype=jnp.int32) - 1
    total = jnp.sum(keep, dtype=jnp.int32)
    # Two writes to one slot have no defined order: only the last C are written.
    written = keep & (rank >= total - capacity)
    slot = jnp.where(written, (buffer.cursor + rank) % capacity, capacity)

    def put(old: Array, new: Array) -> Array:
        return old.at[slot].set(new.astype(old.dtype), mode="drop")

    return Buffer(
        items=jax.tree.map(put, buffer.items, items),
        reward=put(buffer.reward, reward),
        duration=put(buffer.duration, duration),
        size=jnp.minimum(buffer.size + total, capacity),
        cursor=(buffer.cursor + total) % capacity,
        rejected=buffer.rejected + jnp.sum(asked & ~usable, dtype=jnp.int32),
    )


def scores(buffer: Buffer, rate: Array | float) -> Array:
    """[C] reward - rate * duration at this rate; -inf in empty slots."""
    held = jnp.arange(buffer.reward.shape[0]) < buffer.size
    value = relative_reward(buffer.reward, buffer.duration, jnp.asarray(rate))
    return jnp.where(held, value, -jnp.inf)


def top_k(
    buffer: Buffer, k: int, *, rate: Array | float = 0.0, cycle: bool = False
) -> TopK:
    """The k attempts with the largest reward - rate * duration, best first.

    Args:
      buffer: state.
      k: static number of attempts; may exceed the capacity only with ``cycle``.
      rate: present reward per second; 0 ranks by reward alone.
      cycle: with fewer than k attempts, start again from the best (rank i % size)
        instead of returning entries that are not valid.

    Raises:
      ValueError: k < 1, or k > capacity without ``cycle``.
    """
    capacity = buffer.reward.shape[0]
    if k < 1 or (k > capacity and not cycle):
        raise ValueError(f"k must be in 1..{capacity} without cycle, got {k}")
    score, index = jax.lax.top_k(scores(buffer, rate), min(k, capacity))
    if cycle:
        turn = jnp.arange(k) % jnp.maximum(jnp.minimum(buffer.size, k), 1)
        score, index = score[turn], index[turn]
    return TopK(
        items=jax.tree.map(lambda leaf: leaf[index], buffer.items),
        index=index.astype(jnp.int32),
        score=score,
        valid=jnp.isfinite(score),
    )
