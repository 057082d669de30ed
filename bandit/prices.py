"""Prices of a second: what a policy-gradient agent charges for time, and how it learns.

Each is a ``Price(init, update, rate)`` over single decisions of one trial. The slots
and the cells are laid out for one decision at a time, thousands of trials side by side;
tests hold them against the library's estimators (``rpg_jax``), which take batches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bandit.base import CellSums, GreedyRate
from rpg_jax import conjugate, ratio
from rpg_jax.slots import fit_slots
from rpg_jax.types import Batch, RateEstimator

NUM_SLOTS = 128
FIT_EVERY = 8
FORGETTING = 0.3
LEVEL = 0.95


class Decision(NamedTuple):
    """What a price sees of a decision, after the cells were updated.

    Attributes:
      t: number of the decision, from 1, float32 [].
      context: x, int32 [].
      action: a, int32 [].
      reward: r, [].
      duration: delta in seconds, [].
      is_greedy: whether a was the arg max of the logits when chosen, bool [].
      uniform: the decision's U(0, 1) draw, a seed for estimates that need one, [].
      cells: the context's sums, this sample included.
    """

    t: jax.Array
    context: jax.Array
    action: jax.Array
    reward: jax.Array
    duration: jax.Array
    is_greedy: jax.Array
    uniform: jax.Array
    cells: CellSums


class Price(NamedTuple):
    """Pure functions of a price: () -> state, (state, decision) -> state, rho_hat."""

    init: Callable[[], Any]
    update: Callable[[Any, Decision], Any]
    rate: Callable[[Any], jax.Array]


class SlotState(NamedTuple):
    """The paper's estimate: 128 accumulators and a NIW posterior over them.

    Attributes:
      slots: sum of rewards, sum of durations, birth of each slot, [3, 128].
      fed: decisions that fed a slot, int32 [].
      niw: the carried posterior over (slot reward, log slot duration).
      rate: rho_hat, reward per second, [].
    """

    slots: jax.Array
    fed: jax.Array
    niw: conjugate.NIW
    rate: jax.Array


def niw_slots(*, age: jax.Array | float, num_sampled: int = 0) -> Price:
    """The paper's pooled NIW over slots fed round robin by greedy decisions.

    A decision whose arm is the arg max of the logits adds its (r, delta) to the next
    slot; a slot older than ``age`` decisions is emptied first. At every 8th decision
    that feeds, with at least two filled slots, the NIW is refitted with forgetting 0.3
    and rho_hat = max(0, 95th percentile of the predictive ratio of batch means).

    Args:
      age: decisions after which a slot starts anew.
      num_sampled: batches of the sampled percentile (the paper: 1,000); 0 computes the
        percentile analytically.

    Source: the paper, Algorithm 1 and bandit validation.
    """

    def init() -> SlotState:
        return SlotState(
            slots=jnp.zeros((3, NUM_SLOTS)),
            fed=jnp.zeros((), jnp.int32),
            niw=conjugate.niw_prior(),
            rate=jnp.zeros(()),
        )

    def update(state: SlotState, decision: Decision) -> SlotState:
        feeds = decision.is_greedy
        index = state.fed % NUM_SLOTS
        slot = state.slots[:, index]
        sample = jnp.stack([decision.reward, decision.duration, jnp.zeros(())])
        fresh = jnp.stack([decision.reward, decision.duration, decision.t])
        stale = decision.t - slot[2] > age
        slot = jnp.where(feeds, jnp.where(stale, fresh, slot + sample), slot)
        slots = state.slots.at[:, index].set(slot)

        def fit(carried: conjugate.NIW) -> tuple[conjugate.NIW, jax.Array]:
            filled = slots[1] > 0
            result = fit_slots(
                carried, slots[0], slots[1], filled, forgetting=FORGETTING
            )
            if num_sampled:
                bits = jax.lax.bitcast_convert_type(decision.uniform, jnp.uint32)
                quantile = ratio.ratio_quantile_sampled(
                    jax.random.fold_in(jax.random.key(0), bits),
                    result.niw,
                    result.number,
                    level=LEVEL,
                    num_batches=num_sampled,
                    max_count=NUM_SLOTS,
                )
            else:
                quantile = ratio.ratio_quantile(result.niw, result.number, level=LEVEL)
            ready = feeds & (result.number >= 2)
            niw = jax.tree.map(
                lambda new, old: jnp.where(ready, new, old), result.niw, carried
            )
            return niw, jnp.where(ready, jnp.maximum(quantile, 0.0), state.rate)

        # t is shared by all trials, so under vmap this stays a branch.
        niw, rate = jax.lax.cond(
            decision.t % FIT_EVERY == 0, fit, lambda n: (n, state.rate), state.niw
        )
        return SlotState(slots, state.fed + feeds.astype(jnp.int32), niw, rate)

    return Price(init, update, lambda state: state.rate)


def plug_in(num_contexts: int) -> Price:
    """Dinkelbach's rate on the mean of every (context, arm) cell.

    rho = mean_x rbar(x, u(x)) / mean_x dbar(x, u(x)), u greedy for rbar - rho dbar: the
    posterior mean of per-cell NIWs with a vanishing prior.

    Args:
      num_contexts: X.
    """

    def update(state: GreedyRate, decision: Decision) -> GreedyRate:
        return state.refresh(decision.context, decision.cells)

    return Price(
        lambda: GreedyRate.empty(num_contexts), update, lambda state: state.rate
    )


class CollectedState(NamedTuple):
    """Decisions collected for an estimator of ``rpg_jax``, its state and its rate."""

    batch: Batch
    estimator: Any
    rate: jax.Array


def from_estimator(
    estimator: RateEstimator, *, every: int = 1, greedy_only: bool = True
) -> Price:
    """Any ``rpg_jax`` RateEstimator as a price, fed in batches of ``every`` decisions.

    Args:
      estimator: what to feed.
      every: decisions between two updates.
      greedy_only: mask out decisions whose arm was not the arg max of the logits, for
        estimators that average what they see.
    """

    def init() -> CollectedState:
        index = jnp.zeros(every, jnp.int32)
        zeros = jnp.zeros(every)
        return CollectedState(
            Batch(index, index, zeros, zeros + 1.0, jnp.zeros(every, bool)),
            estimator.init(),
            jnp.zeros(()),
        )

    def update(state: CollectedState, decision: Decision) -> CollectedState:
        row = Batch(
            decision.context,
            decision.action,
            decision.reward,
            decision.duration,
            decision.is_greedy | (not greedy_only),
        )
        slot = jnp.mod(decision.t, every).astype(jnp.int32)
        batch = jax.tree.map(lambda b, v: b.at[slot].set(v), state.batch, row)

        def learn(state: CollectedState) -> tuple[Any, jax.Array]:
            inner = estimator.update(state.estimator, batch)
            return inner, jnp.maximum(estimator.rate(inner, state.rate), 0.0)

        # t is shared by all trials, so under vmap this stays a branch.
        inner, rate = jax.lax.cond(
            slot == 0, learn, lambda s: (s.estimator, s.rate), state
        )
        return CollectedState(batch, inner, rate)

    return Price(init, update, lambda state: state.rate)


def fixed(rate: jax.Array | float) -> Price:
    """A hand-set price lambda; 0 maximises reward alone.

    Args:
      rate: lambda, reward per second.
    """
    return Price(lambda: (), lambda state, _: state, lambda _: jnp.asarray(rate))


def on_policy() -> Price:
    """The SMDP rate of the policy that is played: sum of r / sum of delta so far."""

    def update(state: jax.Array, decision: Decision) -> jax.Array:
        return state + jnp.stack([decision.reward, decision.duration])

    def rate(state: jax.Array) -> jax.Array:
        return jnp.maximum(state[0], 0.0) / jnp.maximum(state[1], 1e-9)

    return Price(lambda: jnp.zeros(2), update, rate)
