"""The C-UCB agent of Gyorgy et al. (2007)."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from bandit import cucb, cucb_certified
from bandit.base import Agent, CellSums, Step
from bandit.ucb import log_one_plus_policies, ucb_action

#: Contexts up to which the maximum over policies is exact.
MAX_EXACT_CONTEXTS = 4
#: Decisions after which the sampled policies' sums are made anew.
RECOUNT_EVERY = 1024
Rate = Literal["exact", "approximate", "pool", "fresh"]


class CUCBState(NamedTuple):
    """Cells, what the rate is computed from, and the rate.

    Attributes:
      table: cell sums (reward, duration, count), [X, 3, A].
      search: RateBounds, the Pool of sampled policies, or () for fresh ones.
      rate: lambda of the last decision, reward per second, [].
      searches: exact searches so far, [].
    """

    table: jax.Array
    search: Any
    rate: jax.Array
    searches: jax.Array


def _noise_key(step: Step) -> jax.Array:
    """A key of the decision's own, from its uniform draw."""
    bits = jax.lax.bitcast_convert_type(step.uniform, jnp.uint32)
    return jax.random.fold_in(jax.random.key(1), bits)


def cucb_agent(
    num_contexts: int,
    num_actions: int,
    *,
    c1: jax.Array | float,
    c2: jax.Array | float,
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

    Raises:
      ValueError: 'exact' beyond 4 contexts.
    """
    if rate is None:
        rate = "exact" if num_contexts <= MAX_EXACT_CONTEXTS else "pool"
    if rate == "exact" and num_contexts > MAX_EXACT_CONTEXTS:
        raise ValueError(
            f"the exact maximum is for up to {MAX_EXACT_CONTEXTS} contexts, not "
            f"{num_contexts}: use rate='pool'"
        )
    log_all = log_one_plus_policies(num_contexts, num_actions)
    bounded = rate in ("exact", "approximate")
    log_inside = log_all if bounded else log_one_plus_policies(1, cucb.NUM_SAMPLED)

    def logs(step: Step) -> tuple[jax.Array, jax.Array]:
        """C = 2 c1 L of the rate, and L of the bonus."""
        log_t = jnp.log(jnp.maximum(step.t, 2.0))
        return 2.0 * c1 * (log_t + 0.5 * log_inside), log_t + 0.5 * log_all

    def init() -> CUCBState:
        search = ()
        if bounded:
            search = cucb_certified.RateBounds.empty(num_contexts)
        elif rate == "pool":
            search = cucb.empty_pool(num_contexts, num_policies)
        table = jnp.zeros((num_contexts, 3, num_actions))
        return CUCBState(table, search, jnp.asarray(cucb.FLOOR), jnp.zeros(()))

    def act(state: CUCBState, step: Step) -> tuple[jax.Array, CUCBState]:
        cells = CellSums(*state.table[step.context])
        penalty, log_term = logs(step)
        search, searches = state.search, state.searches
        if bounded:
            level, upper = search.enclose(state.table, penalty)
        if rate == "exact":
            # Where an action is untried both arg maxes are the first untried one.
            low = ucb_action(cells, level, c2, log_term)
            high = ucb_action(cells, upper, c2, log_term)
            # An infinite rate would make all actions equal, and prove nothing.
            needed = (low != high) | (jnp.isinf(upper) & cells.tried.all())
            found, search = cucb_certified.search(search, state.table, penalty, needed)
            level = jnp.where(needed, found, level)
            searches = searches + needed.astype(jnp.float32)
        elif rate == "pool":
            level = cucb.pool_rate(search, penalty)
        elif rate == "fresh":
            level = cucb.sampled_rate(_noise_key(step), state.table, penalty)
        action = ucb_action(cells, level, c2, log_term)
        return action, CUCBState(state.table, search, level, searches)

    def update(
        state: CUCBState,
        step: Step,
        action: jax.Array,
        reward: jax.Array,
        duration: jax.Array,
    ) -> CUCBState:
        old = state.table[step.context]
        new = jnp.stack(CellSums(*old).add(action, reward, duration))
        table = state.table.at[step.context].set(new)
        search = state.search
        if bounded:
            penalty, _ = logs(step)
            search = search.add(table, step.context, action, reward, duration, penalty)
        elif rate == "pool":
            uniform = jax.random.uniform(_noise_key(step))
            search = cucb.refresh_pool(search, uniform, step.context, old, new)
            # t is shared by all trials, so under vmap this stays a branch.
            search = jax.lax.cond(
                step.t % RECOUNT_EVERY == 0,
                lambda pool: cucb.recount_pool(pool, table),
                lambda pool: pool,
                search,
            )
        return state._replace(table=table, search=search)

    return Agent(init, act, update, lambda state: state.rate)
