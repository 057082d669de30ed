"""The C-UCB agent of Gyorgy et al. (2007), with the rate from ``bandit.cucb``."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from bandit import cucb
from bandit.base import Agent, CellSums, Step
from bandit.ucb import log_one_plus_policies, ucb_action

#: Contexts up to which the maximum over policies is exact.
MAX_EXACT_CONTEXTS = 4
Rate = Literal["exact", "approximate", "pool", "fresh"]


class CUCBState(NamedTuple):
    """Cells, the rate's maximiser, and the policies sampled when X > 4.

    Attributes:
      table: cell sums (reward, duration, count), [X, 3, A].
      policy: the last maximiser, where the next search starts, int32 [X].
      pool: random policies and their sums (rate 'pool'), else None.
      rate: lambda of the last decision, reward per second, [].
    """

    table: jax.Array
    policy: jax.Array
    pool: cucb.Pool | None
    rate: jax.Array


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
      rate: how lambda is found. 'exact' maximises over all A^X policies;
        'approximate' is a local search, for tuning only; 'fresh' draws 2,048 policies
        at every decision (the paper beyond 4 contexts) and 'pool' redraws them in the
        visited context only, 10 times cheaper. Default: 'exact' up to 4 contexts, then
        'pool'.
    """
    if rate is None:
        rate = "exact" if num_contexts <= MAX_EXACT_CONTEXTS else "pool"
    log_all = log_one_plus_policies(num_contexts, num_actions)
    sampled = rate in ("pool", "fresh")
    log_inside = log_one_plus_policies(1, cucb.NUM_SAMPLED) if sampled else log_all

    def init() -> CUCBState:
        return CUCBState(
            table=jnp.zeros((num_contexts, 3, num_actions)),
            policy=jnp.zeros(num_contexts, jnp.int32),
            pool=cucb.empty_pool(num_contexts) if rate == "pool" else None,
            rate=jnp.asarray(cucb.FLOOR),
        )

    def act(state: CUCBState, step: Step) -> tuple[jax.Array, CUCBState]:
        cells = CellSums(*state.table[step.context])
        log_t = jnp.log(jnp.maximum(step.t, 2.0))
        penalty = 2.0 * c1 * (log_t + 0.5 * log_inside)
        policy = state.policy
        if rate == "exact":
            # With an untried action at hand lambda is not used.
            level, policy = cucb.exact_rate(
                state.table, penalty, policy, cells.tried.all()
            )
        elif rate == "approximate":
            level, policy = cucb.approximate_rate(state.table, penalty, policy)
        elif rate == "pool":
            level = cucb.pool_rate(state.pool, penalty)
        else:
            level = cucb.sampled_rate(_noise_key(step), state.table, penalty)
        action = ucb_action(cells, level, c2, log_t + 0.5 * log_all)
        return action, state._replace(policy=policy, rate=level)

    def update(
        state: CUCBState,
        step: Step,
        action: jax.Array,
        reward: jax.Array,
        duration: jax.Array,
    ) -> CUCBState:
        old = state.table[step.context]
        new = jnp.stack(CellSums(*old).add(action, reward, duration))
        pool = state.pool
        if pool is not None:
            uniform = jax.random.uniform(_noise_key(step), (cucb.NUM_SAMPLED,))
            pool = cucb.refresh_pool(pool, uniform, step.context, old, new)
        table = state.table.at[step.context].set(new)
        return state._replace(table=table, pool=pool)

    return Agent(init, act, update, lambda state: state.rate)
