"""Policies over cell tables: their penalised rate, local search, enumeration.

Trials-last layout: tables are [X, A, B], policies [X, B], one column per trial, which
XLA's CPU backend vectorises best.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Tables(NamedTuple):
    """Cell sums of every trial: reward, duration (seconds), count, each [X, A, B]."""

    reward: jax.Array
    duration: jax.Array
    count: jax.Array


def penalised_rate(
    reward: jax.Array, duration: jax.Array, count: jax.Array, penalty: jax.Array
) -> jax.Array:
    """f = R/D - sqrt(C/T); -inf where D = 0 or T = 0 (such policies do not count)."""
    valid = (duration > 0) & (count > 0)
    rate = reward / jnp.where(valid, duration, 1.0)
    value = rate - jnp.sqrt(penalty / jnp.where(valid, count, 1.0))
    return jnp.where(valid, value, -jnp.inf)


def first_argmax(values: jax.Array, best: jax.Array) -> jax.Array:
    """First index along axis 0 at which ``values`` reaches ``best``, as int32.

    Much faster than argmax on CPU; an all-NaN column gives the last index, in range.
    """
    size = values.shape[0]
    index = jnp.arange(size, dtype=jnp.int32).reshape((size,) + (1,) * best.ndim)
    return jnp.min(jnp.where(values >= best[None], index, size - 1), axis=0)


def policy_sums(tables: Tables, policy: jax.Array) -> tuple[jax.Array, ...]:
    """R_u, D_u and T_u, each [B], of one policy [X, B] per trial."""
    index = policy[:, None, :]
    return tuple(
        jnp.take_along_axis(table, index, axis=1)[:, 0].sum(axis=0) for table in tables
    )


def coordinate_ascent(
    tables: Tables, penalty: jax.Array, policy: jax.Array, sweeps: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Improve a policy one context at a time: a local maximum's value and policy.

    Args:
      tables: cell sums [X, A, B].
      penalty: C = 2 c1 L, [B].
      policy: where to start, int32 [X, B].
      sweeps: passes over the contexts.

    Returns:
      value [B] (-inf if no policy met counts) and policy [X, B].
    """
    num_contexts = tables.reward.shape[0]
    index = policy[:, None, :]
    chosen = [jnp.take_along_axis(table, index, axis=1)[:, 0] for table in tables]
    value = jnp.full_like(penalty, -jnp.inf)
    for _ in range(sweeps):
        for x in range(num_contexts):
            rest = [c.sum(axis=0) - c[x] for c in chosen]
            if num_contexts == 1:
                rest = [jnp.zeros_like(r) for r in rest]
            sums = [table[x] + r[None] for table, r in zip(tables, rest, strict=True)]
            values = penalised_rate(*sums, penalty[None])
            value = values.max(axis=0)
            arm = first_argmax(values, value)
            policy = policy.at[x].set(arm)
            picked = [
                jnp.take_along_axis(table[x], arm[None], axis=0)[0] for table in tables
            ]
            chosen = [c.at[x].set(p) for c, p in zip(chosen, picked, strict=True)]
    # Differences above may round; the value reported is that of the policy itself.
    return penalised_rate(*policy_sums(tables, policy), penalty), policy


def _pair_lists(lists: Tables) -> tuple[Tables, Tables]:
    """All sums over the first half of the contexts and over the second half."""

    def sums(rows: jax.Array) -> jax.Array:
        out = rows[0]
        for row in rows[1:]:
            out = (out[:, None] + row[None]).reshape(-1, row.shape[-1])
        return out

    half = (lists.reward.shape[0] + 1) // 2
    first = Tables(*(sums(rows[:half]) for rows in lists))
    if lists.reward.shape[0] == half:
        return first, Tables(*(jnp.zeros_like(s[:1]) for s in first))
    return first, Tables(*(sums(rows[half:]) for rows in lists))


def enumerate_product(lists: Tables, penalty: jax.Array) -> tuple[jax.Array, jax.Array]:
    """max of f over all combinations of m listed cells a context, m^X of them.

    Args:
      lists: sums of the listed cells, [X, m, B].
      penalty: C = 2 c1 L, [B].

    Returns:
      value [B] and the position of the best cell in each context's list, int32 [X, B].
    """
    num_contexts, width, _ = lists.reward.shape
    first, second = _pair_lists(lists)

    def body(carry, row):
        best, where = carry
        index, sums = row
        value = penalised_rate(
            *(s + a[None] for s, a in zip(second, sums, strict=True)), penalty[None]
        )
        better = value > best
        return (jnp.where(better, value, best), jnp.where(better, index, where)), None

    start = (
        jnp.full_like(second.reward, -jnp.inf),
        jnp.zeros(second.reward.shape, jnp.int32),
    )
    count = first.reward.shape[0]
    (best, where), _ = jax.lax.scan(
        body,
        start,
        (jnp.arange(count, dtype=jnp.int32), first),
        unroll=min(4, count),
    )
    value = best.max(axis=0)
    column = first_argmax(best, value)
    row = jnp.take_along_axis(where, column[None], axis=0)[0]
    half = (num_contexts + 1) // 2
    digits = []
    for number, length in ((row, half), (column, num_contexts - half)):
        part = []
        for _ in range(length):
            part.append(number % width)
            number = number // width
        digits += part[::-1]
    return value, jnp.stack(digits).astype(jnp.int32)


def brute_force_max(
    sum_r: jax.Array, sum_d: jax.Array, n: jax.Array, c1_L2: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """max over all A^X policies of R_u/D_u - sqrt(2 c1 L/T_u), by enumeration.

    Args:
      sum_r: reward sums [X, A, B].
      sum_d: duration sums [X, A, B], seconds.
      n: counts [X, A, B].
      c1_L2: 2 c1 L, scalar or [B].

    Returns:
      value [B] (-inf where no policy counts) and policy, int32 [X, B].
    """
    tables = Tables(sum_r, sum_d, n)
    penalty = jnp.broadcast_to(jnp.asarray(c1_L2, sum_r.dtype), sum_r.shape[2:])
    return enumerate_product(tables, penalty)
