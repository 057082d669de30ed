"""Tabular policy-gradient agents: NPG and SPG on priced samples.

One agent family with three switches: the update rule, the price of a second, and what a
sample's reward is taken to be. The paper's NPG-NIW and SPG-NIW are (npg | spg, slots,
plain); vanilla RL is (npg, free, plain).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax.numpy as jnp
from jaxtyping import Array, Float

from bandit.base import (
    Agent,
    CellSums,
    Index,
    Number,
    PerAction,
    Scalar,
    Step,
    categorical,
    check_numbers,
    check_sizes,
    first_argmax,
)
from bandit.prices import Decision, Price
from rpg_jax import updates

Rule = Literal["npg", "spg"]
Signal = Literal["plain", "ratio", "duration-weighted"]


class TabularState(NamedTuple):
    """Logits and sums, one row of four A-vectors a context, and the price's state.

    Attributes:
      table: logits, sum of rewards, sum of durations, count.
      mean_duration: running mean duration over all decisions, seconds.
      price: state of the price.
    """

    table: Float[Array, "contexts 4 actions"]
    mean_duration: Scalar
    price: Any


def tabular_policy_gradient(
    num_contexts: int,
    num_actions: int,
    *,
    step_size: Number,
    price: Price,
    rule: Rule = "npg",
    signal: Signal = "plain",
) -> Agent:
    """Softmax policy over a table of logits, one exact update a decision.

    After each decision, in the visited context only, with pi the softmax of theta,
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

    Raises:
      ValueError: X or A is below 1, or an unknown rule or signal.

    Source: the paper, natural policy gradient and reward-rate RL; bandit validation.
    """
    check_sizes(num_contexts, num_actions)
    check_numbers(step_size=step_size)
    if rule not in get_args(Rule) or signal not in get_args(Signal):
        raise ValueError(f"unknown rule {rule!r} or signal {signal!r}")
    rule_update = updates.npg if rule == "npg" else updates.spg

    def init() -> TabularState:
        table = jnp.zeros((num_contexts, 4, num_actions))
        return TabularState(table, jnp.zeros(()), price.init())

    def act(state: TabularState, step: Step) -> tuple[Index, TabularState]:
        logits = state.table[step.context, 0]
        action = categorical(step.uniform, jnp.exp(logits - logits.max()))
        return action, state

    update = partial(_update, rule_update, signal, price, step_size)
    return Agent(init, act, update, lambda state: price.rate(state.price))


def _update(
    rule_update: Callable[..., PerAction],
    signal: Signal,
    price: Price,
    step_size: Number,
    state: TabularState,
    step: Step,
    action: Index,
    reward: Scalar,
    duration: Scalar,
) -> TabularState:
    row = state.table[step.context]
    logits, cells = row[0], CellSums(row[1], row[2], row[3])
    mean_duration = state.mean_duration + (duration - state.mean_duration) / step.t
    cells = cells.add(action, _credit(signal, reward, duration), duration)
    is_greedy = action == first_argmax(logits)
    decision = Decision.of(step, action, reward, duration, is_greedy, cells)
    price_state = price.update(state.price, decision)
    q_values = cells.value(price.rate(price_state))
    if signal == "duration-weighted":
        q_values = q_values / mean_duration
    logits = rule_update(logits, q_values, step_size=step_size)
    table = state.table.at[step.context].set(jnp.stack([logits, *cells]))
    return TabularState(table, mean_duration, price_state)


def _credit(signal: Signal, reward: Scalar, duration: Scalar) -> Scalar:
    """What a sample adds to its cell's sum of rewards."""
    if signal == "ratio":
        return reward / duration
    if signal == "duration-weighted":
        return reward * duration
    return reward
