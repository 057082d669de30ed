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
from jaxtyping import Array, Float, Int

from bandit.base import Number
from bandit.cucb_bounds import Mask
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
from bandit.cucb_stages import Flags, Found, search_round, split_search

_SHARES = (0.25, 0.5, 0.0625)  # what counts as often, in successive splits
_ENUMERABLE = 1296  # so many policies cost no more than their bounds


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
_Stage = Callable[[_Problem, Column, Policy, Int[Array, " group"]], Found]


def _search(part: _Problem, level: Column, policy: Policy, tries: Array) -> Found:
    del tries
    return search_round(part.tables, part.allowed, part.penalty, level, policy)


def _split(part: _Problem, level: Column, policy: Policy, tries: Array) -> Found:
    del policy
    share = jnp.asarray(_SHARES, level.dtype)[tries]
    return split_search(part.tables, part.allowed, part.penalty, level, share)


def _enumerate(part: _Problem, level: Column, policy: Policy, tries: Array) -> Found:
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
