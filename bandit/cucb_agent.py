"""The C-UCB agent of Gyorgy et al. (2007)."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from bandit import cucb, cucb_certified
from bandit.base import (
    Agent,
    CellSums,
    Index,
    Number,
    Scalar,
    Step,
    check_numbers,
    check_sizes,
)
from bandit.ucb import log_one_plus_policies, ucb_action

#: Contexts up to which the maximum over policies is exact.
MAX_EXACT_CONTEXTS = 4
#: Decisions after which the sampled policies' sums are made anew.
RECOUNT_EVERY = 1024
Rate = Literal["exact", "approximate", "pool", "fresh"]


class CUCBState(NamedTuple):
    """Cells, what the rate is computed from, and the rate.

    Attributes:
      table: cell sums (reward, duration, count).
      search: RateBounds, the Pool of sampled policies, or () for fresh ones.
      rate: lambda of the last decision, reward per second.
      searches: exact searches so far.
    """

    table: Float[Array, "contexts 3 actions"]
    search: Any
    rate: Scalar
    searches: Scalar


def _noise_key(step: Step) -> Key[Array, ""]:
    """A key of the decision's own, from its uniform draw."""
    bits = jax.lax.bitcast_convert_type(step.uniform, jnp.uint32)
    return jax.random.fold_in(jax.random.key(1), bits)


class _Method(NamedTuple):
    """One way to find lambda; each function is of one trial.

    Attributes:
      empty: () -> the search's state before any decision.
      level: (search, table, penalty, L, context's cells, step) -> lambda, search, and
        whether an exact search ran.
      follow: (search, sample) -> search.
      log_policies: log(1 + |U|) inside lambda.
    """

    empty: Callable[[], Any]
    level: Callable[
        [Any, Float[Array, "contexts 3 actions"], Scalar, Scalar, CellSums, Step],
        tuple[Scalar, Any, Scalar],
    ]
    follow: Callable[[Any, "_Sample"], Any]
    log_policies: float


class _Sample(NamedTuple):
    """A decision's outcome; rows are of its context, before and after it.

    The table before is not here: whoever reads it after the update makes XLA copy it.
    """

    step: Step
    action: Index
    reward: Scalar
    duration: Scalar
    old_row: Float[Array, "3 actions"]
    new_row: Float[Array, "3 actions"]
    table: Float[Array, "contexts 3 actions"]
    penalty: Scalar


def _bounded(
    num_contexts: int, num_actions: int, c2: Number, *, exact: bool
) -> _Method:
    """lambda enclosed by bounds, searched exactly where a decision needs it."""

    def level(
        search: cucb_certified.RateBounds,
        table: Float[Array, "contexts 3 actions"],
        penalty: Scalar,
        log_term: Scalar,
        cells: CellSums,
        step: Step,
    ) -> tuple[Scalar, cucb_certified.RateBounds, Scalar]:
        del step
        lower, upper = search.enclose(table, penalty)
        if not exact:
            return lower, search, jnp.zeros(())
        # Where an action is untried both arg maxes are the first untried one.
        low = ucb_action(cells, lower, c2, log_term)
        high = ucb_action(cells, upper, c2, log_term)
        # An infinite rate would make all actions equal, and prove nothing.
        needed = (low != high) | (jnp.isinf(upper) & cells.tried.all())
        found, search = cucb_certified.search(search, table, penalty, needed)
        return jnp.where(needed, found, lower), search, needed.astype(jnp.float32)

    def follow(
        search: cucb_certified.RateBounds, sample: _Sample
    ) -> cucb_certified.RateBounds:
        return search.add(
            sample.table,
            sample.step.context,
            sample.action,
            sample.reward,
            sample.duration,
            sample.penalty,
        )

    return _Method(
        lambda: cucb_certified.RateBounds.empty(num_contexts),
        level,
        follow,
        log_one_plus_policies(num_contexts, num_actions),
    )


def _pooled(num_contexts: int, num_policies: int) -> _Method:
    """lambda over random policies that are redrawn in the visited context only."""

    def level(
        search: cucb.Pool,
        table: Float[Array, "contexts 3 actions"],
        penalty: Scalar,
        *_: object,
    ) -> tuple[Scalar, cucb.Pool, Scalar]:
        del table
        return cucb.pool_rate(search, penalty), search, jnp.zeros(())

    def follow(search: cucb.Pool, sample: _Sample) -> cucb.Pool:
        context = sample.step.context
        uniform = jax.random.uniform(_noise_key(sample.step))
        search = cucb.refresh_pool(
            search, uniform, context, sample.old_row, sample.new_row
        )
        # t is shared by all trials, so under vmap this stays a branch.
        counted: cucb.Pool = jax.lax.cond(
            sample.step.t % RECOUNT_EVERY == 0,
            lambda pool: cucb.recount_pool(pool, sample.table),
            lambda pool: pool,
            search,
        )
        return counted

    return _Method(
        lambda: cucb.empty_pool(num_contexts, num_policies),
        level,
        follow,
        log_one_plus_policies(1, cucb.NUM_SAMPLED),
    )


def _fresh() -> _Method:
    """lambda over random policies drawn anew at every decision."""

    def level(
        search: tuple[()],
        table: Float[Array, "contexts 3 actions"],
        penalty: Scalar,
        log_term: Scalar,
        cells: CellSums,
        step: Step,
    ) -> tuple[Scalar, tuple[()], Scalar]:
        del log_term, cells
        rate = cucb.sampled_rate(_noise_key(step), table, penalty)
        return rate, search, jnp.zeros(())

    return _Method(
        lambda: (),
        level,
        lambda search, sample: search,
        log_one_plus_policies(1, cucb.NUM_SAMPLED),
    )


def _method(
    rate: Rate | None,
    num_contexts: int,
    num_actions: int,
    c2: Number,
    num_policies: int,
) -> _Method:
    """How lambda is found; None is exact where that is possible.

    Raises:
      ValueError: an unknown rate, or 'exact' beyond 4 contexts.
    """
    if rate is None:
        rate = "exact" if num_contexts <= MAX_EXACT_CONTEXTS else "pool"
    if rate not in get_args(Rate):
        raise ValueError(f"unknown rate {rate!r}: choose from {get_args(Rate)}")
    if rate == "exact" and num_contexts > MAX_EXACT_CONTEXTS:
        raise ValueError(
            f"the exact maximum is for up to {MAX_EXACT_CONTEXTS} contexts, not "
            f"{num_contexts}: use rate='pool'"
        )
    if rate == "pool":
        return _pooled(num_contexts, num_policies)
    if rate == "fresh":
        return _fresh()
    return _bounded(num_contexts, num_actions, c2, exact=rate == "exact")


def cucb_agent(
    num_contexts: int,
    num_actions: int,
    *,
    c1: Number,
    c2: Number,
    rate: Rate | None = None,
    num_policies: int = cucb.NUM_SAMPLED,
) -> Agent:
    """C-UCB: an upper confidence index priced at an upper bound of the best rate.

    In a context with an untried action the first untried one is played; otherwise
    argmax_a rbar(x,a) - lambda dbar(x,a) + c2 sqrt(L/n(x,a)), where lambda is the
    maximum over policies u of R_u/D_u - sqrt(2 c1 L/T_u) and L = log max(t, 2) +
    log(1 + |U|)/2. Sums weigh contexts by visits, so that with more than one context
    lambda tends to the best rate over subsets of contexts, not to rho*.

    Args:
      num_contexts: X.
      num_actions: A = K + 1.
      c1: scale of the rate's penalty.
      c2: scale of the bonus.
      rate: how lambda is found. 'exact' maximises over all A^X policies, searching only
        where the decision depends on it (``cucb_certified``; the state's rate is then a
        lower bound of lambda between searches); 'approximate' uses that lower bound
        throughout, for tuning only; 'fresh' draws 2,048 policies at every decision (the
        paper beyond 4 contexts) and 'pool' redraws them in the visited context only, at
        a fraction of the cost. Default: 'exact' up to 4 contexts, then 'pool'.

      num_policies: policies of the pool.

    Raises:
      ValueError: 'exact' beyond 4 contexts, X or A below 1, or a constant that is
        negative or not finite.
    """
    check_sizes(num_contexts, num_actions)
    check_numbers(c1=c1, c2=c2)
    method = _method(rate, num_contexts, num_actions, c2, num_policies)
    log_all = log_one_plus_policies(num_contexts, num_actions)

    def logs(step: Step) -> tuple[Scalar, Scalar]:
        """C = 2 c1 L of the rate, and L of the bonus."""
        log_t = jnp.log(jnp.maximum(step.t, 2.0))
        penalty = 2.0 * c1 * (log_t + 0.5 * method.log_policies)
        return penalty, log_t + 0.5 * log_all

    def init() -> CUCBState:
        table = jnp.zeros((num_contexts, 3, num_actions))
        floor = jnp.asarray(cucb.FLOOR)
        return CUCBState(table, method.empty(), floor, jnp.zeros(()))

    def act(state: CUCBState, step: Step) -> tuple[Index, CUCBState]:
        cells = CellSums(*state.table[step.context])
        penalty, log_term = logs(step)
        level, search, searched = method.level(
            state.search, state.table, penalty, log_term, cells, step
        )
        action = ucb_action(cells, level, c2, log_term)
        searches = state.searches + searched
        return action, CUCBState(state.table, search, level, searches)

    def update(
        state: CUCBState, step: Step, action: Index, reward: Scalar, duration: Scalar
    ) -> CUCBState:
        old = state.table[step.context]
        new = jnp.stack(CellSums(*old).add(action, reward, duration))
        table = state.table.at[step.context].set(new)
        penalty, _ = logs(step)
        sample = _Sample(step, action, reward, duration, old, new, table, penalty)
        search = method.follow(state.search, sample)
        return state._replace(table=table, search=search)

    return Agent(init, act, update, lambda state: state.rate)
