"""PPO on the tabular policy: the clipped surrogate on batches of priced samples.

The paper argues from NPG to PPO and shows NPG alone on the bandit; this is the missing
curve, with the same cells, prices and policy class.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bandit.base import (
    Agent,
    CellSums,
    Index,
    Number,
    Scalar,
    Step,
    categorical,
    check_numbers,
    check_sizes,
    first_argmax,
)
from bandit.prices import Decision, Price
from rpg_jax import updates

#: Decisions in a batch; the update runs when t is a multiple of it.
BATCH = 64


class PPOState(NamedTuple):
    """Policy, cells, the batch in collection and the price's state.

    Attributes:
      logits: of the policy.
      table: cell sums (reward, duration, count).
      taken: contexts and actions of the last BATCH decisions.
      price: state of the price.
    """

    logits: Float[Array, "contexts actions"]
    table: Float[Array, "contexts 3 actions"]
    taken: Int[Array, "batch 2"]
    price: Any


def tabular_ppo(
    num_contexts: int,
    num_actions: int,
    *,
    step_size: Number,
    price: Price,
    clip_eps: float = 0.2,
    num_epochs: int = 4,
) -> Agent:
    """Clipped-surrogate ascent every 64 decisions, advantages from the cells.

    The advantage of a sample is Q(x, a) - pi.Q(x) with the Q of NPG, so that the rule
    of the update is the only difference to ``tabular_policy_gradient``.

    Args:
      num_contexts: X.
      num_actions: A = K + 1.
      step_size: step of each epoch's gradient ascent on the batch's mean.
      price: estimates rho_hat; see ``bandit.prices``.
      clip_eps: half-width of the ratio's trust region.
      num_epochs: gradient steps on each batch.

    Raises:
      ValueError: X or A is below 1, or a hyper-parameter is out of its range.

    Source: Schulman et al. (2017).
    """
    check_sizes(num_contexts, num_actions)
    check_numbers(step_size=step_size, clip_eps=clip_eps)
    _check_epochs(num_epochs)

    def init() -> PPOState:
        logits = jnp.zeros((num_contexts, num_actions))
        table = jnp.zeros((num_contexts, 3, num_actions))
        return PPOState(logits, table, jnp.zeros((BATCH, 2), jnp.int32), price.init())

    def act(state: PPOState, step: Step) -> tuple[Index, PPOState]:
        logits = state.logits[step.context]
        return categorical(step.uniform, jnp.exp(logits - logits.max())), state

    ascended = partial(_ascended, price, step_size, clip_eps, num_epochs)

    def update(
        state: PPOState, step: Step, action: Index, reward: Scalar, duration: Scalar
    ) -> PPOState:
        cells = CellSums(*state.table[step.context]).add(action, reward, duration)
        is_greedy = action == first_argmax(state.logits[step.context])
        decision = Decision.of(step, action, reward, duration, is_greedy, cells)
        slot = jnp.mod(step.t, BATCH).astype(jnp.int32)
        state = state._replace(
            table=state.table.at[step.context].set(jnp.stack(cells)),
            taken=state.taken.at[slot].set(jnp.stack([step.context, action])),
            price=price.update(state.price, decision),
        )

        # t is shared by all trials, so under vmap this stays a branch.
        logits = jax.lax.cond(slot == 0, ascended, lambda s: s.logits, state)
        return state._replace(logits=logits)

    return Agent(init, act, update, lambda state: price.rate(state.price))


def _check_epochs(num_epochs: int) -> None:
    if num_epochs < 1:
        raise ValueError(f"num_epochs must be at least 1, got {num_epochs}")


def _ascended(
    price: Price, step_size: Number, clip_eps: float, num_epochs: int, state: PPOState
) -> Float[Array, "contexts actions"]:
    """Logits after the gradient steps on the collected batch."""
    context, action = state.taken[:, 0], state.taken[:, 1]
    advantage = _advantages(state, price.rate(state.price))
    return updates.ppo(
        state.logits,
        context,
        action,
        advantage[context, action],
        jnp.ones(BATCH, bool),
        step_size=step_size,
        clip_eps=clip_eps,
        num_epochs=num_epochs,
    )


def _advantages(state: PPOState, rate: Scalar) -> Float[Array, "contexts actions"]:
    """Q - pi.Q of every cell, priced at ``rate``."""
    cells = CellSums(*jnp.moveaxis(state.table, 1, 0))
    q_values = cells.value(rate)
    policy = jax.nn.softmax(state.logits)
    return q_values - (policy * q_values).sum(-1, keepdims=True)
