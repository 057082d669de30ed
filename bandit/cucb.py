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

import jax
import jax.numpy as jnp
import numpy as np

from bandit.cucb_exact import exact_max
from bandit.cucb_policies import (
    Tables,
    brute_force_max,
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


def log_term(t: jax.Array, log_num_policies: float) -> jax.Array:
    """L = log max(t, 2) + log(1 + |U|)/2 in nats, from log |U|.

    Args:
      t: decision number, counted from 1.
      log_num_policies: log |U|: X log A for the full class, log 2048 inside lambda
        when policies are sampled.
    """
    return jnp.log(jnp.maximum(t, 2.0)) + 0.5 * float(
        np.logaddexp(0.0, log_num_policies)
    )


def approximate_max(
    sum_r: jax.Array,
    sum_d: jax.Array,
    n: jax.Array,
    c1_L2: jax.Array,
    incumbent: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """A lower bound of lambda by two local searches; *not* the exact maximum.

    One start is the incumbent; the other the policy that maximises the penalised rate
    linearised at the incumbent's value, one context at a time. Each is followed by one
    pass of coordinate ascent.

    Args:
      sum_r: reward sums [X, A, B].
      sum_d: duration sums [X, A, B], seconds.
      n: counts [X, A, B].
      c1_L2: 2 c1 L, scalar or [B].
      incumbent: the previous decision's policy, int32 [X, B].

    Returns:
      value [B], floored at 1e-9, and policy, int32 [X, B].
    """
    tables = Tables(sum_r, sum_d, n)
    penalty = jnp.broadcast_to(jnp.asarray(c1_L2, sum_r.dtype), sum_r.shape[2:])
    value, policy = coordinate_ascent(tables, penalty, incumbent)
    _, duration, total = policy_sums(tables, policy)
    total = jnp.maximum(total, 1.0)
    fee = jnp.sqrt(penalty / total)
    price = jnp.where(jnp.isfinite(value), jnp.maximum(value, FLOOR), 0.0) + fee
    gain = 0.5 * fee * duration / total  # what one more sample takes off the penalty
    score = sum_r - price[None, None] * sum_d + gain[None, None] * n
    score = jnp.where(n > 0, score, -jnp.inf).swapaxes(0, 1)
    start = first_argmax(score, score.max(axis=0))
    other, candidate = coordinate_ascent(tables, penalty, start)
    better = other > value
    policy = jnp.where(better[None], candidate, policy)
    return jnp.maximum(jnp.maximum(value, other), FLOOR), policy


def disagreement(
    sum_r: jax.Array,
    sum_d: jax.Array,
    n: jax.Array,
    c1_L2: jax.Array,
    incumbent: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """How far the approximate maximum falls short of the exact one, table by table.

    Args:
      sum_r: reward sums [X, A, B] of B recorded tables.
      sum_d: duration sums [X, A, B], seconds.
      n: counts [X, A, B].
      c1_L2: 2 c1 L, scalar or [B].
      incumbent: the previous decision's policy, int32 [X, B].

    Returns:
      exact minus approximate lambda [B] (>= 0 but for rounding) and whether they
      differ by more than rounding, bool [B].
    """
    exact, _, _ = exact_max(sum_r, sum_d, n, c1_L2, incumbent, floor=FLOOR)
    approximate, _ = approximate_max(sum_r, sum_d, n, c1_L2, incumbent)
    gap = exact - approximate
    return gap, gap > 1e-6 * (1.0 + jnp.abs(exact) + jnp.sqrt(c1_L2))


def _draw_tried(uniform: jax.Array, count: jax.Array) -> jax.Array:
    """Actions uniform over the tried ones: uniform [P], count [A] -> int32 [P].

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
    key: jax.Array,
    table: jax.Array,
    c1_L2: jax.Array,
    num_policies: int = NUM_SAMPLED,
) -> jax.Array:
    """lambda over random policies, each context's action uniform over its tried ones.

    Args:
      key: fresh at every decision.
      table: cell sums [X, 3, A] of one trial.
      c1_L2: 2 c1 L with L = log max(t, 2) + log(1 + num_policies)/2, [].
      num_policies: policies drawn.
    """
    uniform = jax.random.uniform(key, (table.shape[0], num_policies))
    action = jax.vmap(_draw_tried)(uniform, table[:, 2])
    chosen = jnp.take_along_axis(table, action[:, None], axis=2)
    value = penalised_rate(*chosen.sum(axis=0), c1_L2)
    return jnp.maximum(value.max(), FLOOR)


class Pool(NamedTuple):
    """Random policies kept between decisions.

    Policy p plays, in context x, the tried action of rank floor(m frac(U[x, p] +
    shift[x])) of m, with one fixed table U of uniforms: nothing of size X P is stored
    or copied per trial.

    Attributes:
      shift: each context's rotation of its uniforms, [X].
      sums: R_u, D_u, T_u of each policy, [3, P].
    """

    shift: jax.Array
    sums: jax.Array


@cache
def _uniforms(num_contexts: int, num_policies: int) -> np.ndarray:
    rng = np.random.default_rng(2048)
    return rng.random((num_contexts, num_policies), np.float32)


def _pool_action(
    context: jax.Array, shift: jax.Array, count: jax.Array, like: Pool
) -> jax.Array:
    """The pool's actions in one context whose tried actions are those of ``count``."""
    shape = (like.shift.shape[0], like.sums.shape[1])
    turned = jnp.asarray(_uniforms(*shape))[context] + shift
    return _draw_tried(turned - jnp.floor(turned), count)


def empty_pool(num_contexts: int, num_policies: int = NUM_SAMPLED) -> Pool:
    """The pool before any decision: all sums zero."""
    return Pool(jnp.zeros(num_contexts), jnp.zeros((3, num_policies)))


def refresh_pool(
    pool: Pool,
    uniform: jax.Array,
    context: jax.Array,
    old_row: jax.Array,
    new_row: jax.Array,
) -> Pool:
    """The pool after a decision in ``context``: O(P) instead of O(X P).

    Each policy's action in the visited context is drawn again, uniform over the tried
    ones; the other contexts keep theirs. As a context's tried actions change only when
    it is visited, every decision still meets policies whose actions are independent and
    uniform over the tried ones; unlike fresh draws, those of successive decisions are
    dependent (a context keeps its draw until its next visit).

    Args:
      pool: policies and sums.
      uniform: a U(0, 1) draw, the context's new rotation, [].
      context: the visited context, int32 [].
      old_row: its cell sums before the decision, [3, A].
      new_row: its cell sums after it, [3, A].
    """
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


def pool_actions(pool: Pool, table: jax.Array) -> jax.Array:
    """Every policy's action in every context, int32 [X, P].

    Args:
      pool: policies and sums.
      table: cell sums that the pool has followed, [X, 3, A].
    """
    contexts = jnp.arange(table.shape[0])
    return jax.vmap(_pool_action, (0, 0, 0, None))(
        contexts, pool.shift, table[:, 2], pool
    )


def recount_pool(pool: Pool, table: jax.Array) -> Pool:
    """The same policies with sums made anew: undoes the rounding of many refreshes."""
    actions = pool_actions(pool, table)
    chosen = jnp.take_along_axis(table, actions[:, None], axis=2)
    return pool._replace(sums=chosen.sum(axis=0))


def pool_rate(pool: Pool, c1_L2: jax.Array) -> jax.Array:
    """lambda over the pool's policies, floored at 1e-9."""
    return jnp.maximum(penalised_rate(*pool.sums, c1_L2).max(), FLOOR)
