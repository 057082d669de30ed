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

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bandit.base import Number
from bandit.cucb_bounds import (
    NEVER,
    Mask,
    cell_bounds,
    count_range,
    even_edges,
    near_edges,
)
from bandit.cucb_policies import (
    Column,
    Policy,
    Table,
    Tables,
    checked_tables,
    coordinate_ascent,
    enumerate_product,
    first_argmax,
    penalised_rate,
    policy_sums,
)

_WIDTH = 4  # cells a context that are enumerated after pruning
_SHARES = (0.25, 0.5, 0.0625)  # what counts as often, in successive splits
_ENUMERABLE = 1296  # so many policies cost no more than their bounds

Flags = Bool[Array, " trials"]
#: Value and policy of the best policy met, and whether it is proved to be the best.
_Found = tuple[Column, Policy, Flags]
#: The cells of largest bound, [X, width, B], their indices, and the next bound.
_Top = tuple[Tables, Int[Array, "contexts width trials"], Array]


class SearchInfo(NamedTuple):
    """How a search went.

    Attributes:
      searched: trials that needed the first stage.
      split: trials that needed the second.
      enumerated: trials that needed full enumeration.
    """

    searched: Int[Array, ""]
    split: Int[Array, ""]
    enumerated: Int[Array, ""]


def _top_cells(tables: Tables, bound: Table, width: int) -> _Top:
    """The ``width`` cells of largest bound in each context, and the next bound."""
    arms = bound.shape[1]
    num_contexts, _, batch = bound.shape
    keys = [jnp.full((num_contexts, batch), NEVER, bound.dtype)] * (width + 1)
    zeros = jnp.zeros((num_contexts, batch), bound.dtype)
    # An empty slot must not act as a cell: its count makes any policy invalid.
    empty = (zeros, zeros, zeros + NEVER, zeros.astype(jnp.int32))
    payload = [empty] * width

    Carry = tuple[tuple[Array, ...], tuple[tuple[Array, ...], ...]]

    def insert(carry: Carry, cell: tuple[Array, ...]) -> tuple[Carry, None]:
        key, item = cell[0], cell[1:]
        keys, payload = list(carry[0]), list(carry[1])
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
    start: Carry = (tuple(keys), tuple(payload))
    (last_keys, found), _ = jax.lax.scan(insert, start, rows)
    stacked = [jnp.stack([p[i] for p in found], axis=1) for i in range(4)]
    return Tables(*stacked[:3]), stacked[3], last_keys[width]


def _enumerate_best(tables: Tables, bound: Table, penalty: Column) -> _Found:
    """Value, policy and proof of the cells of largest bound, _WIDTH a context."""
    width = min(_WIDTH, bound.shape[1])
    lists, index, rest = _top_cells(tables, bound, width)
    value, position = enumerate_product(lists, penalty)
    policy = jnp.take_along_axis(index, position[:, None], axis=1)[:, 0]
    return value, policy, (rest < 0).all(axis=0)


def search_round(
    tables: Tables, allowed: Mask, penalty: Column, level: Column, policy: Policy
) -> _Found:
    """Bound all cells, enumerate the best few of each context.

    Args:
      tables: cell sums.
      allowed: cells to consider.
      penalty: C = 2 c1 L.
      level: the value to beat.
      policy: incumbent whose count the bands crowd around.

    Returns:
      value and policy of the best enumerated, and proved: no policy of allowed cells
      beats max(level, value).
    """
    least, low, high = count_range(tables.visits, allowed)
    _, duration, count = policy_sums(tables, policy)
    edges = near_edges(low, jnp.maximum(count, 1.0), high)
    ratio = _ratio(duration, count)
    bound = cell_bounds(tables, allowed, penalty, level, ratio, edges, least)
    return _enumerate_best(tables, bound, penalty)


def _ratio(duration: Column, count: Column) -> Column:
    """Seconds per decision, 1 where nothing was measured."""
    usable = (duration > 0) & (count > 0)
    return jnp.where(usable, duration / jnp.maximum(count, 1.0), 1.0)


def _parts(tables: Tables, allowed: Mask, share: Column) -> tuple[Tables, Mask]:
    """2^X columns a trial, and each one's cells: the often or the seldom played."""
    num_contexts, arms, batch = tables.reward.shape
    parts = 2**num_contexts
    most = tables.visits.max(axis=1, keepdims=True)
    heavy = tables.visits > share[None, None] * most
    bits = (jnp.arange(parts)[None] >> jnp.arange(num_contexts)[:, None]) & 1
    mask = heavy[..., None] == (bits == 1)[:, None, None]
    mask = mask.reshape(num_contexts, arms, batch * parts)
    mask = mask & _repeat(allowed, parts)
    return Tables(*(_repeat(t, parts) for t in tables)), mask


def _repeat(x: Array, parts: int) -> Array:
    """Each trial's column ``parts`` times: [..., B] -> [..., B parts]."""
    wide = jnp.broadcast_to(x[..., None], (*x.shape, parts))
    return wide.reshape(*x.shape[:-1], x.shape[-1] * parts)


def _part_bounds(
    tables: Tables, columns: Tables, mask: Mask, penalty: Column, level: Column
) -> Table:
    """``cell_bounds`` of every part of every trial."""
    parts = 2 ** tables.reward.shape[0]
    least, low, high = count_range(columns.visits, mask)
    ratio = _ratio(tables.duration.sum((0, 1)), tables.visits.sum((0, 1)))
    return cell_bounds(
        columns,
        mask,
        _repeat(penalty, parts),
        _repeat(level, parts),
        _repeat(ratio, parts),
        even_edges(low, high),
        least,
    )


def split_search(
    tables: Tables, allowed: Mask, penalty: Column, level: Column, share: Column
) -> _Found:
    """``search_round`` on 2^X parts: each context's often or seldom played cells.

    Two policies that compete from far-apart counts (one with, one without a heavy
    cell) leave a gap in any separable bound at the counts between them, which no
    policy attains. Within a part the range of counts is short and the gap closes.
    Most parts hold no promising cell; at most a quarter of them are enumerated, and a
    trial with more stays unproved.

    Args:
      tables: cell sums.
      allowed: cells to consider.
      penalty: C = 2 c1 L.
      level: the value to beat.
      share: often means more than this share of the context's largest count.

    Returns:
      As ``search_round``.
    """
    num_contexts, _, batch = tables.reward.shape
    parts = 2**num_contexts
    total = batch * parts
    columns, mask = _parts(tables, allowed, share)
    bound = _part_bounds(tables, columns, mask, penalty, level)
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


def first_untried_only(count: Table) -> Mask:
    """Cells worth listing: all tried ones and one untried a context (all are equal)."""
    untried = count <= 0
    return ~untried | (jnp.cumsum(untried, axis=1, dtype=jnp.int32) <= 1)


def cannot_reach(tables: Tables, penalty: Column, floor: Float[Array, ""]) -> Flags:
    """Whether surely f(u) <= floor for every policy.

    R_u/D_u is a weighted mean of the cells' r/d, hence at most their largest, and T_u
    at most the sum of the contexts' largest counts.
    """
    timed = tables.duration > 0
    rates = tables.reward / jnp.where(timed, tables.duration, 1.0)
    best = jnp.where(timed, rates, -jnp.inf).max(axis=(0, 1))
    odd = (~timed & (tables.reward != 0)).any(axis=(0, 1))  # reward in no time
    most = jnp.maximum(tables.visits.max(axis=1).sum(axis=0), 1.0)
    fee = jnp.sqrt(penalty / most)
    margin = 1e-6 * (jnp.abs(best) + fee)
    return (best - fee + margin <= floor) & ~odd


class _Problem(NamedTuple):
    """What the stages of a search share: cells, those to consider, C and the floor."""

    tables: Tables
    allowed: Mask
    penalty: Column
    floor: Float[Array, ""]

    def part(self, trials: Int[Array, " group"]) -> "_Problem":
        """The same of some trials."""
        return _Problem(
            Tables(*(t[:, :, trials] for t in self.tables)),
            self.allowed[:, :, trials],
            self.penalty[trials],
            self.floor,
        )


class _State(NamedTuple):
    """How far each trial's search is: best value and policy, tries, whether settled."""

    value: Column
    policy: Policy
    tries: Int[Array, " trials"]
    done: Flags


#: (a group's problem, level to beat, incumbent, tries so far) -> what it found.
_Stage = Callable[[_Problem, Column, Policy, Int[Array, " group"]], _Found]


def _search(part: _Problem, level: Column, policy: Policy, tries: Array) -> _Found:
    del tries
    return search_round(part.tables, part.allowed, part.penalty, level, policy)


def _split(part: _Problem, level: Column, policy: Policy, tries: Array) -> _Found:
    del policy
    share = jnp.asarray(_SHARES, level.dtype)[tries]
    return split_search(part.tables, part.allowed, part.penalty, level, share)


def _enumerate(part: _Problem, level: Column, policy: Policy, tries: Array) -> _Found:
    del level, policy
    return (*enumerate_product(part.tables, part.penalty), tries == tries)


def _settle(
    problem: _Problem, stage: _Stage, state: _State, limit: int, size: int
) -> _State:
    """Runs ``stage`` on pending trials, ``size`` at a time, up to ``limit`` times each.

    Returns:
      The state, tries counted from 0 again.
    """
    batch = problem.penalty.shape[0]
    size = min(size, batch)

    def pending(state: _State) -> Flags:
        return ~state.done & (state.tries < limit)

    def group(state: _State) -> _State:
        index = jnp.nonzero(pending(state), size=size, fill_value=batch)[0]
        index = index.astype(jnp.int32)
        own = jnp.minimum(index, batch - 1)  # padding repeats a trial, then drops
        value, policy, tries = state.value[own], state.policy[:, own], state.tries[own]
        level = jnp.where(jnp.isfinite(value), value, 0.0)
        level = jnp.maximum(level, problem.floor)
        found, candidate, proved = stage(problem.part(own), level, policy, tries)
        better = found > value
        new = _State(
            jnp.where(better, found, value),
            jnp.where(better[None], candidate, policy),
            tries + 1,
            proved,
        )
        put = (
            old.at[..., index].set(item, mode="drop")
            for old, item in zip(state, new, strict=True)
        )
        return _State(*put)

    state = jax.lax.while_loop(lambda s: pending(s).any(), group, state)
    return state._replace(tries=jnp.zeros_like(state.tries))


def _start(problem: _Problem, incumbent: Policy, needed: Flags | None) -> _State:
    """The incumbent after one pass of coordinate ascent."""
    tables, _, penalty, floor = problem
    value, policy = coordinate_ascent(tables, penalty, incumbent)
    # A start without duration has no ratio to centre on: take the longest cells.
    seconds = tables.duration
    longest = first_argmax(seconds.swapaxes(0, 1), seconds.max(axis=1))
    policy = jnp.where(jnp.isfinite(value)[None], policy, longest)
    reward, duration, visits = policy_sums(tables, policy)
    value = penalised_rate(reward, duration, visits, penalty)
    done = ~jnp.isfinite(value) | cannot_reach(tables, penalty, floor)
    if needed is not None:
        done = done | ~needed
    return _State(value, policy, jnp.zeros(value.shape, jnp.int32), done)


def exact_max(
    sum_r: Table,
    sum_d: Table,
    n: Table,
    c1_L2: Column | Number,
    incumbent: Policy,
    *,
    floor: Number = 1e-9,
    needed: Flags | None = None,
    lanes: int = 8,
) -> tuple[Column, Policy, SearchInfo]:
    """lambda = max(floor, max_u R_u/D_u - sqrt(2 c1 L/T_u)) over all A^X policies.

    Exact: equal to brute force up to float32 rounding (see the module's proof). Where
    the floor binds, the policy returned is the best one met, not the maximiser.
    Batched by hand: call it on all trials, not under vmap.

    Args:
      sum_r: reward sums, X <= 4.
      sum_d: duration sums, seconds, >= 0.
      n: counts; untried cells are 0 in all three tables.
      c1_L2: 2 c1 L, scalar or [B].
      incumbent: where to start; best the previous decision's policy.
      floor: least value of lambda.
      needed: trials that need lambda; others may get a lower bound of it.
      lanes: trials per group in the second stage (16 times as many in the first).

    Returns:
      value, policy int32, SearchInfo.

    Raises:
      ValueError: X > 4, or lanes < 1.
    """
    tables, penalty = checked_tables(sum_r, sum_d, n, c1_L2)
    num_contexts, arms, batch = tables.reward.shape
    if num_contexts > 4:
        raise ValueError(
            f"exact_max takes at most 4 contexts, got {num_contexts}: use sampled_rate"
        )
    if lanes < 1:
        raise ValueError(f"lanes must be at least 1, got {lanes}")
    chex.assert_shape(incumbent, (num_contexts, batch))
    least = jnp.asarray(floor, tables.reward.dtype)
    if arms**num_contexts <= _ENUMERABLE:
        none = jnp.zeros((), jnp.int32)
        value, policy = enumerate_product(tables, penalty)
        return jnp.maximum(value, least), policy, SearchInfo(none, none, none)
    problem = _Problem(tables, first_untried_only(tables.visits), penalty, least)
    settle = partial(_settle, problem)
    state = _start(problem, incumbent, needed)
    searched = (~state.done).sum(dtype=jnp.int32)
    state = settle(_search, state, 1, 16 * lanes)
    hard = (~state.done).sum(dtype=jnp.int32)
    state = settle(_split, state, len(_SHARES), lanes)
    hopeless = (~state.done).sum(dtype=jnp.int32)
    state = settle(_enumerate, state, 1, 1)
    info = SearchInfo(searched, hard, hopeless)
    return jnp.maximum(state.value, least), state.policy, info
