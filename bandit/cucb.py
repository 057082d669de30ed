"""C-UCB's rate (Gyorgy et al. 2007): the maximum, over policies, of a penalised rate.

    lambda_t = max(1e-9, max_u R_u/D_u - sqrt(2 c1 L_t / T_u)),

R_u, D_u, T_u being sums over contexts of the reward sums, duration sums and counts of
the cells (x, u(x)); policies with D_u = 0 or T_u = 0 do not count. Four ways to get it:

- ``exact_max``: the maximum over all A^X policies, X <= 4 (see ``cucb_exact``). Agents
  call it through ``cucb_certified``, which searches only where a decision needs it.
- ``approximate_max``: coordinate ascent from the previous decision's policy and from
  one multiplier step. A lower bound; ``disagreement`` measures how low.
- ``sampled_rate``: 2,048 fresh random policies at every decision, for X > 4.
- ``refresh_pool`` and ``pool_rate``: 2,048 policies kept between decisions with their
  sums, redrawn in the visited context only.

The ``_max`` functions and ``disagreement`` take all trials at once, trials last; the
others are written for one trial and meant to be vmapped.
"""

from functools import cache
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bandit.base import Index, Number, PerAction, Scalar, check_sizes
from bandit.cucb_exact import exact_max
from bandit.cucb_policies import (
    Column,
    Policy,
    Table,
    brute_force_max,
    checked_tables,
    coordinate_ascent,
    first_argmax,
    penalised_rate,
    policy_sums,
)

__all__ = [
    "FLOOR",
    "NUM_SAMPLED",
    "Pool",
    "approximate_max",
    "brute_force_max",
    "disagreement",
    "empty_pool",
    "exact_max",
    "log_term",
    "pool_actions",
    "pool_rate",
    "recount_pool",
    "refresh_pool",
    "sampled_rate",
]

#: Least value of lambda.
FLOOR = 1e-9
#: Random policies a decision when there are too many contexts for the exact maximum.
NUM_SAMPLED = 2048


def log_term(t: Float[Array, "..."], log_num_policies: float) -> Float[Array, "..."]:
    """L = log max(t, 2) + log(1 + |U|)/2 in nats, from log |U|.

    Args:
      t: decision number, counted from 1.
      log_num_policies: log |U|: X log A for the full class, log 2048 inside lambda
        when policies are sampled.

    Raises:
      ValueError: log_num_policies is not finite.
    """
    if not np.isfinite(log_num_policies):
        raise ValueError(f"log_num_policies must be finite, got {log_num_policies}")
    return jnp.log(jnp.maximum(t, 2.0)) + 0.5 * float(
        np.logaddexp(0.0, log_num_policies)
    )


def approximate_max(
    sum_r: Table,
    sum_d: Table,
    n: Table,
    c1_L2: Column | Number,
    incumbent: Policy,
) -> tuple[Column, Policy]:
    """A lower bound of lambda by two local searches; *not* the exact maximum.

    One start is the incumbent; the other the policy that maximises the penalised rate
    linearised at the incumbent's value, one context at a time. Each is followed by one
    pass of coordinate ascent.

    Args:
      sum_r: reward sums.
      sum_d: duration sums, seconds.
      n: counts.
      c1_L2: 2 c1 L, scalar or [B].
      incumbent: the previous decision's policy, int32.

    Returns:
      value, floored at 1e-9, and policy.
    """
    tables, penalty = checked_tables(sum_r, sum_d, n, c1_L2)
    chex.assert_shape(incumbent, (sum_r.shape[0], sum_r.shape[2]))
    value, policy = coordinate_ascent(tables, penalty, incumbent)
    _, duration, total = policy_sums(tables, policy)
    total = jnp.maximum(total, 1.0)
    fee = jnp.sqrt(penalty / total)
    charged = jnp.where(jnp.isfinite(value), jnp.maximum(value, FLOOR), 0.0) + fee
    gain = 0.5 * fee * duration / total  # what one more sample takes off the penalty
    sum_r, sum_d, n = tables.reward, tables.duration, tables.visits
    score = sum_r - charged[None, None] * sum_d + gain[None, None] * n
    score = jnp.where(n > 0, score, -jnp.inf).swapaxes(0, 1)
    start = first_argmax(score, score.max(axis=0))
    other, candidate = coordinate_ascent(tables, penalty, start)
    better = other > value
    policy = jnp.where(better[None], candidate, policy)
    return jnp.maximum(jnp.maximum(value, other), FLOOR), policy


def disagreement(
    sum_r: Table,
    sum_d: Table,
    n: Table,
    c1_L2: Column | Number,
    incumbent: Policy,
) -> tuple[Column, Bool[Array, " trials"]]:
    """How far the approximate maximum falls short of the exact one, table by table.

    Args:
      sum_r: reward sums of B recorded tables.
      sum_d: duration sums, seconds.
      n: counts.
      c1_L2: 2 c1 L, scalar or [B].
      incumbent: the previous decision's policy, int32.

    Returns:
      exact minus approximate lambda (>= 0 but for rounding) and whether they differ by
      more than rounding.
    """
    exact, _, _ = exact_max(sum_r, sum_d, n, c1_L2, incumbent, floor=FLOOR)
    approximate, _ = approximate_max(sum_r, sum_d, n, c1_L2, incumbent)
    gap = exact - approximate
    return gap, gap > 1e-6 * (1.0 + jnp.abs(exact) + jnp.sqrt(jnp.asarray(c1_L2)))


def _draw_tried(
    uniform: Float[Array, " policies"], count: PerAction
) -> Int[Array, " policies"]:
    """Actions uniform over the tried ones.

    Where nothing is tried the action is 0, whose sums are all zero.
    """
    size = count.shape[-1]
    tried = count > 0
    place = jnp.where(tried, jnp.cumsum(tried, dtype=jnp.int32) - 1, size)
    order = jnp.zeros(size, jnp.int32)
    order = order.at[place].set(jnp.arange(size, dtype=jnp.int32), mode="drop")
    number = tried.sum(dtype=jnp.int32)
    rank = (uniform * number.astype(uniform.dtype)).astype(jnp.int32)
    return order.at[jnp.clip(rank, 0, jnp.maximum(number - 1, 0))].get(mode="clip")


def sampled_rate(
    key: Key[Array, ""],
    table: Float[Array, "contexts 3 actions"],
    c1_L2: Number,
    num_policies: int = NUM_SAMPLED,
) -> Scalar:
    """lambda over random policies, each context's action uniform over its tried ones.

    Args:
      key: fresh at every decision.
      table: cell sums of one trial.
      c1_L2: 2 c1 L with L = log max(t, 2) + log(1 + num_policies)/2.
      num_policies: policies drawn.

    Raises:
      ValueError: num_policies < 1.
    """
    _check_policies(num_policies)
    chex.assert_shape(table, (None, 3, None))
    uniform = jax.random.uniform(key, (table.shape[0], num_policies))
    action = jax.vmap(_draw_tried)(uniform, table[:, 2])
    chosen = jnp.take_along_axis(table, action[:, None], axis=2)
    reward, duration, visits = chosen.sum(axis=0)
    value = penalised_rate(reward, duration, visits, jnp.asarray(c1_L2))
    return jnp.maximum(value.max(), FLOOR)


def _check_policies(num_policies: int) -> None:
    if num_policies < 1:
        raise ValueError(f"need at least one policy, got {num_policies}")


class Pool(NamedTuple):
    """Random policies kept between decisions.

    Policy p plays, in context x, the tried action of rank floor(m frac(U[x, p] +
    shift[x])) of m, with one fixed table U of uniforms: nothing of size X P is stored
    or copied per trial.

    Attributes:
      shift: each context's rotation of its uniforms.
      sums: R_u, D_u, T_u of each policy.
    """

    shift: Float[Array, " contexts"]
    sums: Float[Array, "3 policies"]


@cache
def _uniforms(
    num_contexts: int, num_policies: int
) -> Float[np.ndarray, "contexts policies"]:
    rng = np.random.default_rng(2048)
    return rng.random((num_contexts, num_policies), np.float32)


def _pool_action(
    context: Index, shift: Scalar, count: PerAction, like: Pool
) -> Int[Array, " policies"]:
    """The pool's actions in one context whose tried actions are those of ``count``."""
    shape = (like.shift.shape[0], like.sums.shape[1])
    turned = jnp.asarray(_uniforms(*shape))[context] + shift
    return _draw_tried(turned - jnp.floor(turned), count)


def empty_pool(num_contexts: int, num_policies: int = NUM_SAMPLED) -> Pool:
    """The pool before any decision: all sums zero.

    Raises:
      ValueError: X < 1 or num_policies < 1.
    """
    check_sizes(num_contexts, 1)
    _check_policies(num_policies)
    return Pool(jnp.zeros(num_contexts), jnp.zeros((3, num_policies)))


def refresh_pool(
    pool: Pool,
    uniform: Scalar,
    context: Index,
    old_row: Float[Array, "3 actions"],
    new_row: Float[Array, "3 actions"],
) -> Pool:
    """The pool after a decision in ``context``: O(P) instead of O(X P).

    Each policy's action in the visited context is drawn again, uniform over the tried
    ones; the other contexts keep theirs. As a context's tried actions change only when
    it is visited, every decision still meets policies whose actions are independent and
    uniform over the tried ones; unlike fresh draws, those of successive decisions are
    dependent (a context keeps its draw until its next visit).

    Args:
      pool: policies and sums.
      uniform: a U(0, 1) draw, the context's new rotation.
      context: the visited context.
      old_row: its cell sums before the decision.
      new_row: its cell sums after it.
    """
    chex.assert_shape([old_row, new_row], (3, None))
    chex.assert_equal_shape([old_row, new_row])
    old = _pool_action(context, pool.shift[context], old_row[2], pool)
    new = _pool_action(context, uniform, new_row[2], pool)
    # One gather of scalars a row: XLA's CPU backend is slow on windows of three.
    sums = jnp.stack(
        [
            total + after.at[new].get(mode="clip") - before.at[old].get(mode="clip")
            for total, after, before in zip(pool.sums, new_row, old_row, strict=True)
        ]
    )
    return Pool(pool.shift.at[context].set(uniform), sums)


def pool_actions(
    pool: Pool, table: Float[Array, "contexts 3 actions"]
) -> Int[Array, "contexts policies"]:
    """Every policy's action in every context, int32.

    Args:
      pool: policies and sums.
      table: cell sums that the pool has followed.
    """
    contexts = jnp.arange(table.shape[0])
    return jax.vmap(_pool_action, (0, 0, 0, None))(
        contexts, pool.shift, table[:, 2], pool
    )


def recount_pool(pool: Pool, table: Float[Array, "contexts 3 actions"]) -> Pool:
    """The same policies with sums made again: undoes the rounding of many refreshes."""
    actions = pool_actions(pool, table)
    chosen = jnp.take_along_axis(table, actions[:, None], axis=2)
    return pool._replace(sums=chosen.sum(axis=0))


def pool_rate(pool: Pool, c1_L2: Number) -> Scalar:
    """lambda over the pool's policies, floored at 1e-9."""
    reward, duration, visits = pool.sums
    value = penalised_rate(reward, duration, visits, jnp.asarray(c1_L2))
    return jnp.maximum(value.max(), FLOOR)
