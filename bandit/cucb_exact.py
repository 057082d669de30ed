"""Exact maximum of C-UCB's penalised rate without visiting every policy.

C-UCB needs, at every decision, max over the A^X deterministic policies u of

    f(u) = R_u / D_u - sqrt(C / T_u),   C = 2 c1 L_t.

The search is bound and prune, in three stages of which each handles the trials that the
one before could not settle:

1. An incumbent (the previous decision's policy after one pass of coordinate ascent)
   gives a level v. ``cucb_bounds`` bounds, for each cell, every policy through it; a
   cell whose bound says f <= v is in no better policy. All but the four best cells of
   each context must go, and those 4^X combinations are enumerated.
2. The same in 2^X parts: each context's often or seldom played cells. Every policy is
   in one part. Tried with up to three thresholds for "often", and the best v so far.
3. Full enumeration (a few decisions in a million on recorded trajectories).

Stages take the pending trials in groups of fixed size, so that one hard trial does not
make the others wait. A trial whose cells cannot reach the floor in any combination
needs no stage at all. Rounding: the bounds carry a float32 margin, so only policies
within rounding of the maximum can be lost.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bandit.cucb_bounds import NEVER, cell_bounds, count_range, even_edges, near_edges
from bandit.cucb_policies import (
    Tables,
    coordinate_ascent,
    enumerate_product,
    first_argmax,
    penalised_rate,
    policy_sums,
)

_WIDTH = 4  # cells a context that are enumerated after pruning
_SHARES = (0.25, 0.5, 0.0625)  # what counts as often, in successive splits
_ENUMERABLE = 1296  # so many policies cost no more than their bounds


class SearchInfo(NamedTuple):
    """How a search went.

    Attributes:
      searched: trials that needed the first stage, int32 [].
      split: trials that needed the second, int32 [].
      enumerated: trials that needed full enumeration, int32 [].
    """

    searched: jax.Array
    split: jax.Array
    enumerated: jax.Array


def _top_cells(
    tables: Tables, bound: jax.Array, width: int
) -> tuple[Tables, jax.Array, jax.Array]:
    """The ``width`` cells of largest bound in each context, and the next bound."""
    arms = bound.shape[1]
    num_contexts, _, batch = bound.shape
    keys = [jnp.full((num_contexts, batch), NEVER, bound.dtype)] * (width + 1)
    zeros = jnp.zeros((num_contexts, batch), bound.dtype)
    # An empty slot must not act as a cell: its count makes any policy invalid.
    empty = (zeros, zeros, zeros + NEVER, zeros.astype(jnp.int32))
    payload = [empty] * width

    def insert(carry, cell):
        keys, payload = carry
        key, item = cell[0], cell[1:]
        keys, payload = list(keys), list(payload)
        for i in range(width):
            up = key > keys[i]
            keys[i], key = jnp.where(up, key, keys[i]), jnp.where(up, keys[i], key)
            old = payload[i]
            payload[i] = tuple(
                jnp.where(up, n, o) for n, o in zip(item, old, strict=True)
            )
            item = tuple(jnp.where(up, o, n) for n, o in zip(item, old, strict=True))
        keys[width] = jnp.maximum(keys[width], key)
        return (tuple(keys), tuple(payload)), None

    index = jnp.broadcast_to(
        jnp.arange(arms, dtype=jnp.int32)[:, None, None], (arms, num_contexts, batch)
    )
    rows = (bound.swapaxes(0, 1), *(t.swapaxes(0, 1) for t in tables), index)
    (keys, payload), _ = jax.lax.scan(insert, (tuple(keys), tuple(payload)), rows)
    stacked = [jnp.stack([p[i] for p in payload], axis=1) for i in range(4)]
    return Tables(*stacked[:3]), stacked[3], keys[width]


def _enumerate_best(
    tables: Tables, bound: jax.Array, penalty: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value, policy and proof of the cells of largest bound, _WIDTH a context."""
    width = min(_WIDTH, bound.shape[1])
    lists, index, rest = _top_cells(tables, bound, width)
    value, position = enumerate_product(lists, penalty)
    policy = jnp.take_along_axis(index, position[:, None], axis=1)[:, 0]
    return value, policy, (rest < 0).all(axis=0)


def search_round(
    tables: Tables,
    allowed: jax.Array,
    penalty: jax.Array,
    level: jax.Array,
    policy: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Bound all cells, enumerate the best few of each context.

    Args:
      tables: cell sums [X, A, B].
      allowed: cells to consider, bool [X, A, B].
      penalty: C = 2 c1 L, [B].
      level: the value to beat, [B].
      policy: incumbent int32 [X, B] whose count the bands crowd around.

    Returns:
      value [B] and policy [X, B] of the best enumerated, and proved [B]: no policy of
      allowed cells beats max(level, value).
    """
    least, low, high = count_range(tables.count, allowed)
    _, duration, count = policy_sums(tables, policy)
    edges = near_edges(low, jnp.maximum(count, 1.0), high)
    ratio = _ratio(duration, count)
    bound = cell_bounds(tables, allowed, penalty, level, ratio, edges, least)
    return _enumerate_best(tables, bound, penalty)


def _ratio(duration: jax.Array, count: jax.Array) -> jax.Array:
    """Seconds per decision, 1 where nothing was measured."""
    usable = (duration > 0) & (count > 0)
    return jnp.where(usable, duration / jnp.maximum(count, 1.0), 1.0)


def split_search(
    tables: Tables,
    allowed: jax.Array,
    penalty: jax.Array,
    level: jax.Array,
    share: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``search_round`` on 2^X parts: each context's often or seldom played cells.

    Two policies that compete from far-apart counts (one with, one without a heavy
    cell) leave a gap in any separable bound at the counts between them, which no
    policy attains. Within a part the range of counts is short and the gap closes.
    Most parts hold no promising cell; at most a quarter of them are enumerated, and a
    trial with more stays unproved.

    Args:
      tables: cell sums [X, A, B].
      allowed: cells to consider, bool [X, A, B].
      penalty: C = 2 c1 L, [B].
      level: the value to beat, [B].
      share: often means more than this share of the context's largest count, [B].

    Returns:
      As ``search_round``.
    """
    num_contexts, arms, batch = tables.reward.shape
    parts = 2**num_contexts
    total = batch * parts
    heavy = tables.count > share[None, None] * tables.count.max(axis=1, keepdims=True)
    bits = (jnp.arange(parts)[None] >> jnp.arange(num_contexts)[:, None]) & 1
    mask = heavy[..., None] == (bits == 1)[:, None, None]

    def repeat(x):
        return jnp.broadcast_to(x[..., None], (*x.shape, parts)).reshape(
            *x.shape[:-1], total
        )

    mask = mask.reshape(num_contexts, arms, total) & repeat(allowed)
    columns = Tables(*(repeat(t) for t in tables))
    least, low, high = count_range(columns.count, mask)
    ratio = repeat(_ratio(tables.duration.sum((0, 1)), tables.count.sum((0, 1))))
    bound = cell_bounds(
        columns,
        mask,
        repeat(penalty),
        repeat(level),
        ratio,
        even_edges(low, high),
        least,
    )
    alive = (bound >= 0).any(axis=(0, 1))
    room = max(total // 4, 1)
    index = jnp.nonzero(alive, size=room, fill_value=total)[0]
    own = jnp.minimum(index, total - 1)
    trial = own // parts
    found, candidate, proved = _enumerate_best(
        Tables(*(t[..., trial] for t in tables)), bound[..., own], penalty[trial]
    )
    value = jnp.full((total,), -jnp.inf, found.dtype)
    value = value.at[index].set(found, mode="drop").reshape(batch, parts)
    policy = jnp.zeros((num_contexts, total), jnp.int32)
    policy = policy.at[:, index].set(candidate, mode="drop")
    policy = policy.reshape(num_contexts, batch, parts)
    proved = (~alive).at[index].set(proved, mode="drop").reshape(batch, parts)
    best = value.max(axis=1)
    part = first_argmax(value.T, best)
    policy = jnp.take_along_axis(policy, part[None, :, None], axis=2)[..., 0]
    return best, policy, proved.all(axis=1)


def first_untried_only(count: jax.Array) -> jax.Array:
    """Cells worth listing: all tried ones and one untried a context (all are equal)."""
    untried = count <= 0
    return ~untried | (jnp.cumsum(untried, axis=1, dtype=jnp.int32) <= 1)


def cannot_reach(tables: Tables, penalty: jax.Array, floor: jax.Array) -> jax.Array:
    """Whether surely f(u) <= floor for every policy, bool [B].

    R_u/D_u is a weighted mean of the cells' r/d, hence at most their largest, and T_u
    at most the sum of the contexts' largest counts.
    """
    timed = tables.duration > 0
    rates = tables.reward / jnp.where(timed, tables.duration, 1.0)
    best = jnp.where(timed, rates, -jnp.inf).max(axis=(0, 1))
    odd = (~timed & (tables.reward != 0)).any(axis=(0, 1))  # reward in no time
    most = jnp.maximum(tables.count.max(axis=1).sum(axis=0), 1.0)
    fee = jnp.sqrt(penalty / most)
    margin = 1e-6 * (jnp.abs(best) + fee)
    return (best - fee + margin <= floor) & ~odd


def exact_max(
    sum_r: jax.Array,
    sum_d: jax.Array,
    n: jax.Array,
    c1_L2: jax.Array,
    incumbent: jax.Array,
    *,
    floor: float = 1e-9,
    needed: jax.Array | None = None,
    lanes: int = 8,
) -> tuple[jax.Array, jax.Array, SearchInfo]:
    """lambda = max(floor, max_u R_u/D_u - sqrt(2 c1 L/T_u)) over all A^X policies.

    Exact: equal to brute force up to float32 rounding (see the module's proof). Where
    the floor binds, the policy returned is the best one met, not the maximiser.
    Batched by hand: call it on all trials, not under vmap.

    Args:
      sum_r: reward sums [X, A, B], X <= 4.
      sum_d: duration sums [X, A, B], seconds, >= 0.
      n: counts [X, A, B]; untried cells are 0 in all three tables.
      c1_L2: 2 c1 L, scalar or [B].
      incumbent: where to start, int32 [X, B]; best the previous decision's policy.
      floor: least value of lambda.
      needed: trials that need lambda, bool [B]; others may get a lower bound of it.
      lanes: trials per group in the second stage (16 times as many in the first).

    Returns:
      value [B], policy int32 [X, B], SearchInfo.

    Raises:
      ValueError: X > 4.
    """
    num_contexts, arms, batch = sum_r.shape
    if num_contexts > 4:
        raise ValueError(
            f"exact_max takes at most 4 contexts, got {num_contexts}: use sampled_rate"
        )
    tables = Tables(sum_r, sum_d, n)
    penalty = jnp.broadcast_to(jnp.asarray(c1_L2, sum_r.dtype), (batch,))
    floor = jnp.asarray(floor, sum_r.dtype)
    none = jnp.zeros((), jnp.int32)
    if arms**num_contexts <= _ENUMERABLE:
        value, policy = enumerate_product(tables, penalty)
        return jnp.maximum(value, floor), policy, SearchInfo(none, none, none)

    allowed = first_untried_only(n)
    value, policy = coordinate_ascent(tables, penalty, incumbent)
    # A start without duration has no ratio to centre on: take the longest cells.
    longest = first_argmax(sum_d.swapaxes(0, 1), sum_d.max(axis=1))
    policy = jnp.where(jnp.isfinite(value)[None], policy, longest)
    value = penalised_rate(*policy_sums(tables, policy), penalty)
    done = ~jnp.isfinite(value) | cannot_reach(tables, penalty, floor)
    if needed is not None:
        done = done | ~needed
    state = (value, policy, jnp.zeros((batch,), jnp.int32), done)
    shares = jnp.asarray(_SHARES, sum_r.dtype)

    def search(part, cells, c, level, policy, tries):
        del tries
        return search_round(part, cells, c, level, policy)

    def split(part, cells, c, level, policy, tries):
        del policy
        return split_search(part, cells, c, level, shares[tries])

    def enumerate_all(part, cells, c, level, policy, tries):
        del cells, level, policy
        return (*enumerate_product(part, c), tries == tries)

    def settle(stage, state, limit, size):
        """Runs ``stage`` on pending trials, up to ``limit`` times each."""
        size = min(size, batch)

        def pending(state):
            return ~state[3] & (state[2] < limit)

        def group(state):
            value, policy, tries, _ = state
            index = jnp.nonzero(pending(state), size=size, fill_value=batch)[0]
            index = index.astype(jnp.int32)
            own = jnp.minimum(index, batch - 1)  # padding repeats a trial, then drops
            part = Tables(*(t[:, :, own] for t in tables))
            level = jnp.where(jnp.isfinite(value[own]), value[own], 0.0)
            level = jnp.maximum(level, floor)
            found, candidate, proved = stage(
                part,
                allowed[:, :, own],
                penalty[own],
                level,
                policy[:, own],
                tries[own],
            )
            better = found > value[own]
            new = (
                jnp.where(better, found, value[own]),
                jnp.where(better[None], candidate, policy[:, own]),
                tries[own] + 1,
                proved,
            )
            return tuple(
                old.at[..., index].set(item, mode="drop")
                for old, item in zip(state, new, strict=True)
            )

        return jax.lax.while_loop(lambda s: pending(s).any(), group, state)

    searched = (~state[3]).sum(dtype=jnp.int32)
    state = settle(search, state, 1, 16 * lanes)
    hard = (~state[3]).sum(dtype=jnp.int32)
    state = (*state[:2], jnp.zeros_like(state[2]), state[3])
    state = settle(split, state, len(_SHARES), lanes)
    hopeless = (~state[3]).sum(dtype=jnp.int32)
    state = (*state[:2], jnp.zeros_like(state[2]), state[3])
    value, policy, _, _ = settle(enumerate_all, state, 1, 1)
    info = SearchInfo(searched, hard, hopeless)
    return jnp.maximum(value, floor), policy, info
