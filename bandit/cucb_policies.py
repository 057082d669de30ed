"""Policies over cell tables: their penalised rate, local search, enumeration.

Trials-last layout: tables are [X, A, B], policies [X, B], one column per trial, which
XLA's CPU backend vectorises best.
"""

from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bandit.base import Number

Table = Float[Array, "contexts actions trials"]
#: A number of each trial, [B].
Column = Float[Array, " trials"]
#: One policy of each trial.
Policy = Int[Array, "contexts trials"]


class Tables(NamedTuple):
    """Cell sums of every trial: reward, duration (seconds), number of samples."""

    reward: Table
    duration: Table
    visits: Table


def checked_tables(
    sum_r: Table, sum_d: Table, n: Table, c1_L2: Column | Number
) -> tuple[Tables, Column]:
    """The three tables, and 2 c1 L of every trial.

    Raises:
      AssertionError: not three tables of one shape [X, A, B], or a penalty that is
        neither a scalar nor [B].
    """
    tables = Tables(*(jnp.asarray(table) for table in (sum_r, sum_d, n)))
    chex.assert_rank(list(tables), 3)
    chex.assert_equal_shape(list(tables))
    penalty = jnp.asarray(c1_L2, tables.reward.dtype)
    chex.assert_rank(penalty, {0, 1})
    trials = tables.reward.shape[2:]
    if penalty.ndim:
        chex.assert_shape(penalty, trials)
    return tables, jnp.broadcast_to(penalty, trials)


def penalised_rate(
    reward: Float[Array, "..."],
    duration: Float[Array, "..."],
    visits: Float[Array, "..."],
    penalty: Float[Array, "..."],
) -> Float[Array, "..."]:
    """f = R/D - sqrt(C/T); -inf where D = 0 or T = 0 (such policies do not count)."""
    chex.assert_equal_shape([reward, duration, visits])
    valid = (duration > 0) & (visits > 0)
    rate = reward / jnp.where(valid, duration, 1.0)
    value = rate - jnp.sqrt(penalty / jnp.where(valid, visits, 1.0))
    return jnp.where(valid, value, -jnp.inf)


def _value(sums: Sequence[Array], penalty: Array) -> Array:
    """``penalised_rate`` of (R, D, T)."""
    reward, duration, visits = sums
    return penalised_rate(reward, duration, visits, penalty)


def first_argmax(
    values: Float[Array, "..."], best: Float[Array, "..."]
) -> Int[Array, "..."]:
    """First index along axis 0 at which ``values`` reaches ``best``, as int32.

    Much faster than argmax on CPU; an all-NaN column gives the last index, in range.
    """
    size = values.shape[0]
    index = jnp.arange(size, dtype=jnp.int32).reshape((size,) + (1,) * best.ndim)
    return jnp.min(jnp.where(values >= best[None], index, size - 1), axis=0)


def policy_sums(tables: Tables, policy: Policy) -> tuple[Column, Column, Column]:
    """R_u, D_u and T_u of one policy per trial."""
    index = policy[:, None, :]
    reward, duration, visits = (
        jnp.take_along_axis(table, index, axis=1)[:, 0].sum(axis=0) for table in tables
    )
    return reward, duration, visits


def coordinate_ascent(
    tables: Tables, penalty: Column, policy: Policy, sweeps: int = 1
) -> tuple[Column, Policy]:
    """Improve a policy one context at a time: a local maximum's value and policy.

    Args:
      tables: cell sums.
      penalty: C = 2 c1 L.
      policy: where to start, int32.
      sweeps: passes over the contexts.

    Returns:
      value (-inf if no policy met counts) and policy.
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
            values = _value(sums, penalty[None])
            value = values.max(axis=0)
            arm = first_argmax(values, value)
            policy = policy.at[x].set(arm)
            picked = [
                jnp.take_along_axis(table[x], arm[None], axis=0)[0] for table in tables
            ]
            chosen = [c.at[x].set(p) for c, p in zip(chosen, picked, strict=True)]
    # Differences above may round; the value reported is that of the policy itself.
    return _value(policy_sums(tables, policy), penalty), policy


def _pair_lists(lists: Tables) -> tuple[Tables, Tables]:
    """All sums over the first half of the contexts and over the second half."""

    def sums(rows: Table) -> Float[Array, "combinations trials"]:
        out = rows[0]
        for row in rows[1:]:
            out = (out[:, None] + row[None]).reshape(-1, row.shape[-1])
        return out

    half = (lists.reward.shape[0] + 1) // 2
    first = Tables(*(sums(rows[:half]) for rows in lists))
    if lists.reward.shape[0] == half:
        return first, Tables(*(jnp.zeros_like(s[:1]) for s in first))
    return first, Tables(*(sums(rows[half:]) for rows in lists))


def enumerate_product(lists: Tables, penalty: Column) -> tuple[Column, Policy]:
    """max of f over all combinations of m listed cells a context, m^X of them.

    Args:
      lists: sums of the listed cells, [X, m, B].
      penalty: C = 2 c1 L.

    Returns:
      value and the position of the best cell in each context's list, int32.
    """
    num_contexts, width, _ = lists.reward.shape
    first, second = _pair_lists(lists)

    def body(
        carry: tuple[Array, Array], row: tuple[Array, Tables]
    ) -> tuple[tuple[Array, Array], None]:
        best, where = carry
        index, sums = row
        totals = [s + a[None] for s, a in zip(second, sums, strict=True)]
        value = _value(totals, penalty[None])
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
    sum_r: Table, sum_d: Table, n: Table, c1_L2: Column | Number
) -> tuple[Column, Policy]:
    """max over all A^X policies of R_u/D_u - sqrt(2 c1 L/T_u), by enumeration.

    Args:
      sum_r: reward sums.
      sum_d: duration sums, seconds.
      n: counts.
      c1_L2: 2 c1 L, scalar or [B].

    Returns:
      value (-inf where no policy counts) and policy, int32.
    """
    return enumerate_product(*checked_tables(sum_r, sum_d, n, c1_L2))
