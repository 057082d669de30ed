"""The C-UCB agent of Gyorgy et al. (2007)."""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from bandit import cucb
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
from bandit.cucb_methods import MAX_EXACT_CONTEXTS, Method, Rate, Sample, method_of
from bandit.ucb import log_one_plus_policies, ucb_action

__all__ = ["MAX_EXACT_CONTEXTS", "CUCBState", "cucb_agent"]


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


class _Constants(NamedTuple):
    """Both scales, and log(1 + |U|) of the full class."""

    c1: Number
    c2: Number
    log_all: float

    def logs(self, method: Method, step: Step) -> tuple[Scalar, Scalar]:
        """C = 2 c1 L of the rate, and L of the bonus."""
        log_t = jnp.log(jnp.maximum(step.t, 2.0))
        penalty = 2.0 * self.c1 * (log_t + 0.5 * method.log_policies)
        return penalty, log_t + 0.5 * self.log_all


def _act(
    method: Method, constants: _Constants, state: CUCBState, step: Step
) -> tuple[Index, CUCBState]:
    cells = CellSums(*state.table[step.context])
    penalty, log_term = constants.logs(method, step)
    level, search, searched = method.level(
        state.search, state.table, penalty, log_term, cells, step
    )
    action = ucb_action(cells, level, constants.c2, log_term)
    searches = state.searches + searched
    return action, CUCBState(state.table, search, level, searches)


def _update(
    method: Method,
    constants: _Constants,
    state: CUCBState,
    step: Step,
    action: Index,
    reward: Scalar,
    duration: Scalar,
) -> CUCBState:
    old = state.table[step.context]
    new = jnp.stack(CellSums(*old).add(action, reward, duration))
    table = state.table.at[step.context].set(new)
    penalty, _ = constants.logs(method, step)
    sample = Sample(step, action, reward, duration, old, new, table, penalty)
    return state._replace(table=table, search=method.follow(state.search, sample))


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
    method = method_of(rate, num_contexts, num_actions, c2, num_policies)
    constants = _Constants(c1, c2, log_one_plus_policies(num_contexts, num_actions))

    def init() -> CUCBState:
        table = jnp.zeros((num_contexts, 3, num_actions))
        floor = jnp.asarray(cucb.FLOOR)
        return CUCBState(table, method.empty(), floor, jnp.zeros(()))

    return Agent(
        init,
        partial(_act, method, constants),
        partial(_update, method, constants),
        lambda state: state.rate,
    )
