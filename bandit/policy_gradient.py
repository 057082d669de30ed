"""Tabular policy-gradient agents: NPG and SPG on priced samples.

One agent family with three switches: the update rule, the price of a second, and what a
sample's reward is taken to be. The paper's NPG-NIW and SPG-NIW are (npg | spg, slots,
plain); vanilla RL is (npg, free, plain).
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from bandit.base import Agent, CellSums, Step, categorical, first_argmax
from bandit.prices import Decision, Price
from rpg_jax import updates

Rule = Literal["npg", "spg"]
Signal = Literal["plain", "ratio", "duration-weighted"]


class TabularState(NamedTuple):
    """Logits and sums, one row of four A-vectors a context, and the price's state.

    Attributes:
      table: [X, 4, A]: logits, sum of rewards, sum of durations, count.
      mean_duration: running mean duration over all decisions, seconds, [].
      price: state of the price.
    """

    table: jax.Array
    mean_duration: jax.Array
    price: Any


def tabular_policy_gradient(
    num_contexts: int,
    num_actions: int,
    *,
    step_size: jax.Array | float,
    price: Price,
    rule: Rule = "npg",
    signal: Signal = "plain",
) -> Agent:
    """Softmax policy over a table of logits, one exact update a decision.

    After each decision, in the visited context only, with pi the softmax of the logits,
      Q(a) = (sum r - rho_hat sum delta)/n for tried arms, 0 for untried,
      NPG: theta += lr (Q - pi.Q);  SPG: theta += lr pi (Q - pi.Q).

    Args:
      num_contexts: X.
      num_actions: A = K + 1.
      step_size: lr.
      price: estimates rho_hat, the price of a second; see ``bandit.prices``.
      rule: 'npg' or 'spg'.
      signal: 'plain' takes r; 'ratio' takes r/delta of each sample;
        'duration-weighted' takes r delta / mean delta, the weighting of Yang et al.
        (2025).

    Source: the paper, natural policy gradient and reward-rate RL; bandit validation.
    """
    rule_update = {"npg": updates.npg, "spg": updates.spg}[rule]

    def init() -> TabularState:
        return TabularState(
            table=jnp.zeros((num_contexts, 4, num_actions)),
            mean_duration=jnp.zeros(()),
            price=price.init(),
        )

    def act(state: TabularState, step: Step) -> tuple[jax.Array, TabularState]:
        logits = state.table[step.context, 0]
        action = categorical(step.uniform, jnp.exp(logits - logits.max()))
        return action, state

    def update(
        state: TabularState,
        step: Step,
        action: jax.Array,
        reward: jax.Array,
        duration: jax.Array,
    ) -> TabularState:
        row = state.table[step.context]
        logits, cells = row[0], CellSums(row[1], row[2], row[3])
        mean_duration = state.mean_duration + (duration - state.mean_duration) / step.t
        if signal == "ratio":
            credit = reward / duration
        elif signal == "duration-weighted":
            credit = reward * duration
        else:
            credit = reward
        cells = cells.add(action, credit, duration)
        greedy = first_argmax(logits)
        decision = Decision(
            t=step.t,
            context=step.context,
            action=action,
            reward=reward,
            duration=duration,
            is_greedy=action == greedy,
            uniform=step.uniform,
            cells=cells,
        )
        price_state = price.update(state.price, decision)
        q_values = cells.value(price.rate(price_state))
        if signal == "duration-weighted":
            q_values = q_values / mean_duration
        logits = rule_update(logits, q_values, step_size=step_size)
        row = jnp.stack([logits, *cells])
        return TabularState(
            table=state.table.at[step.context].set(row),
            mean_duration=mean_duration,
            price=price_state,
        )

    def rate(state: TabularState) -> jax.Array:
        return price.rate(state.price)

    return Agent(init, act, update, rate)
