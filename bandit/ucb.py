"""Index agents: C-UCB of Gyorgy et al. (2007), its plug-in variant, and two anchors.

In a context with an untried action the first untried one is played; otherwise
argmax_a rbar(x,a) - lambda dbar(x,a) + c2 sqrt(L / n(x,a)) with
L = log max(t, 2) + log(1 + |U|)/2 and |U| = (K+1)^X policies. The agents differ in the
rate lambda.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bandit.base import (
    Agent,
    CellSums,
    GreedyRate,
    Index,
    Number,
    Scalar,
    Step,
    check_numbers,
    check_sizes,
    first_argmax,
)
from bandit.instance import AnyScalar, Env


class TableState(NamedTuple):
    """Cell sums (reward, duration, count) and the plug-in rate's state."""

    table: Float[Array, "contexts 3 actions"]
    greedy: GreedyRate


def log_one_plus_policies(num_contexts: int, num_actions: int) -> float:
    """log(1 + A^X), without forming A^X.

    Raises:
      ValueError: X < 1 or A < 1.
    """
    check_sizes(num_contexts, num_actions)
    return float(np.logaddexp(0.0, num_contexts * np.log(num_actions)))


def ucb_action(cells: CellSums, rate: Number, c2: Number, log_term: Number) -> Index:
    """C-UCB's choice in one context.

    Args:
      cells: the context's sums.
      rate: lambda, reward per second.
      c2: scale of the bonus.
      log_term: L, nats.
    """
    bonus = c2 * jnp.sqrt(log_term / cells.safe_visits)
    index = jnp.where(cells.tried, cells.value(rate) + bonus, jnp.inf)
    return first_argmax(index)


def theory_constants(env: Env) -> tuple[AnyScalar, AnyScalar]:
    """(c1, c2) of the C-UCB theorem, from the extremes of the true means.

    c1 = 2 max((r1-r0)^2/d0^2, r1^2 (d1-d0)^2/d0^4),
    c2 = sqrt(8 max((r1-r0)^2, r1^2 (d1-d0)^2/d0^2)) + sqrt(2 d1^2 c1), SKIP included.
    """
    xp = jnp if isinstance(env.mean_reward, jax.Array) else np
    r0, r1 = env.mean_reward.min(), env.mean_reward.max()
    d0, d1 = env.mean_duration.min(), env.mean_duration.max()
    reward_range, duration_range = (r1 - r0) ** 2, r1**2 * (d1 - d0) ** 2
    c1 = 2 * xp.maximum(reward_range / d0**2, duration_range / d0**4)
    c2 = xp.sqrt(8 * xp.maximum(reward_range, duration_range / d0**2))
    return c1, c2 + xp.sqrt(2 * d1**2 * c1)


def plug_in_ucb(num_contexts: int, num_actions: int, *, c2: Number) -> Agent:
    """C-UCB with the consistent plug-in rate in place of its maximum over policies.

    Args:
      num_contexts: X.
      num_actions: A = K + 1.
      c2: scale of the bonus.

    Raises:
      ValueError: X or A is below 1, or c2 negative or not finite.
    """
    check_numbers(c2=c2)
    log_policies = log_one_plus_policies(num_contexts, num_actions)

    def init() -> TableState:
        return TableState(
            jnp.zeros((num_contexts, 3, num_actions)), GreedyRate.empty(num_contexts)
        )

    def act(state: TableState, step: Step) -> tuple[Index, TableState]:
        cells = CellSums(*state.table[step.context])
        log_term = jnp.log(jnp.maximum(step.t, 2.0)) + 0.5 * log_policies
        return ucb_action(cells, state.greedy.rate, c2, log_term), state

    def update(
        state: TableState, step: Step, action: Index, reward: Scalar, duration: Scalar
    ) -> TableState:
        cells = CellSums(*state.table[step.context]).add(action, reward, duration)
        return TableState(
            state.table.at[step.context].set(jnp.stack(cells)),
            state.greedy.refresh(step.context, cells),
        )

    return Agent(init, act, update, lambda state: state.greedy.rate)


def uniform(num_contexts: int, num_actions: int) -> Agent:
    """Plays every action, SKIP included, with equal probability."""
    check_sizes(num_contexts, num_actions)

    def act(state: tuple[()], step: Step) -> tuple[Index, tuple[()]]:
        action = (step.uniform * num_actions).astype(jnp.int32)
        return jnp.minimum(action, num_actions - 1), state

    return Agent(lambda: (), act, lambda state, *_: state, lambda _: jnp.zeros(()))


def oracle(env: Env) -> Agent:
    """Knows the true means and rho*: zero pseudo-regret, the floor of every figure."""
    relative = env.mean_reward - env.rho_star * env.mean_duration
    best = jax.vmap(first_argmax)(jnp.asarray(relative))
    rate = jnp.asarray(env.rho_star)

    def act(state: tuple[()], step: Step) -> tuple[Index, tuple[()]]:
        return best[step.context], state

    return Agent(lambda: (), act, lambda state, *_: state, lambda _: rate)
