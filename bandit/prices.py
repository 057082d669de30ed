"""Prices of a second: what a policy-gradient agent charges for time, and how it learns.

Each is a ``Price(init, update, rate)`` over single decisions of one trial. The slots
and the cells are laid out for one decision at a time, thousands of trials side by side;
tests hold them against the library's estimators (``rpg_jax``), which take batches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bandit.base import (
    CellSums,
    Flag,
    GreedyRate,
    Index,
    Number,
    Scalar,
    Step,
    check_numbers,
)
from rpg_jax import conjugate, ratio
from rpg_jax.slots import SlotFit, fit_slots
from rpg_jax.types import Batch, RateEstimator

NUM_SLOTS = 128
FIT_EVERY = 8
FORGETTING = 0.3
LEVEL = 0.95


class Decision(NamedTuple):
    """What a price sees of a decision, after the cells were updated.

    Attributes:
      t: number of the decision, from 1, float32.
      context: x.
      action: a.
      reward: r.
      duration: delta in seconds.
      is_greedy: whether a was the arg max of the logits when chosen.
      uniform: the decision's U(0, 1) draw, a seed for estimates that need one.
      cells: the context's sums, this sample included.
    """

    t: Scalar
    context: Index
    action: Index
    reward: Scalar
    duration: Scalar
    is_greedy: Flag
    uniform: Scalar
    cells: CellSums

    @classmethod
    def of(
        cls,
        step: Step,
        action: Index,
        reward: Scalar,
        duration: Scalar,
        is_greedy: Flag,
        cells: CellSums,
    ) -> "Decision":
        """A decision and its outcome."""
        return cls(
            t=step.t,
            context=step.context,
            action=action,
            reward=reward,
            duration=duration,
            is_greedy=is_greedy,
            uniform=step.uniform,
            cells=cells,
        )


class Price(NamedTuple):
    """Pure functions of a price: () -> state, (state, decision) -> state, rho_hat."""

    init: Callable[[], Any]
    update: Callable[[Any, Decision], Any]
    rate: Callable[[Any], Scalar]


class SlotState(NamedTuple):
    """The paper's estimate: 128 accumulators and a NIW posterior over them.

    Attributes:
      slots: sum of rewards, sum of durations, birth of each slot.
      fed: decisions that fed a slot.
      niw: the carried posterior over (slot reward, log slot duration).
      rate: rho_hat, reward per second.
    """

    slots: Float[Array, "3 slots"]
    fed: Index
    niw: conjugate.NIW
    rate: Scalar


def niw_slots(*, age: Number, num_sampled: int = 0) -> Price:
    """The paper's pooled NIW over slots fed round robin by greedy decisions.

    A decision whose arm is the arg max of the logits adds its (r, delta) to the next
    slot; a slot older than ``age`` decisions is emptied first. At every 8th decision
    that feeds, with at least two filled slots, the NIW is refitted with forgetting 0.3
    and rho_hat = max(0, 95th percentile of the predictive ratio of batch means).

    Args:
      age: decisions after which a slot starts from the beginning.
      num_sampled: batches of the sampled percentile (the paper: 1,000); 0 computes the
        percentile analytically.

    Raises:
      ValueError: age is negative or not finite, or num_sampled < 0.

    Source: the paper, Algorithm 1 and bandit validation.
    """
    check_numbers(age=age, num_sampled=num_sampled)

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
        slots = _fed_slots(state.slots, index, decision, age)

        def fit(carried: conjugate.NIW) -> tuple[conjugate.NIW, Scalar]:
            filled = slots[1] > 0
            result = fit_slots(
                carried, slots[0], slots[1], filled, forgetting=FORGETTING
            )
            quantile = _quantile(result, decision.uniform, num_sampled)
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


def _fed_slots(
    slots: Float[Array, "3 slots"], index: Index, decision: Decision, age: Number
) -> Float[Array, "3 slots"]:
    """The slots after a decision, which feeds slot ``index`` if it was greedy."""
    slot = slots[:, index]
    sample = jnp.stack([decision.reward, decision.duration, jnp.zeros(())])
    fresh = jnp.stack([decision.reward, decision.duration, decision.t])
    stale = decision.t - slot[2] > age
    fed = jnp.where(stale, fresh, slot + sample)
    return slots.at[:, index].set(jnp.where(decision.is_greedy, fed, slot))


def _quantile(fit: SlotFit, uniform: Scalar, num_sampled: int) -> Scalar:
    """The 95th percentile of the predictive ratio, analytic or sampled."""
    if not num_sampled:
        return ratio.ratio_quantile(fit.niw, fit.number, level=LEVEL)
    bits = jax.lax.bitcast_convert_type(uniform, jnp.uint32)
    return ratio.ratio_quantile_sampled(
        jax.random.fold_in(jax.random.key(0), bits),
        fit.niw,
        fit.number,
        level=LEVEL,
        num_batches=num_sampled,
        max_count=NUM_SLOTS,
    )


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
    rate: Scalar


def from_estimator(
    estimator: RateEstimator, *, every: int = 1, greedy_only: bool = True
) -> Price:
    """Any ``rpg_jax`` RateEstimator as a price, fed in batches of ``every`` decisions.

    Args:
      estimator: what to feed.
      every: decisions between two updates.
      greedy_only: mask out decisions whose arm was not the arg max of the logits, for
        estimators that average what they see.

    Raises:
      ValueError: every < 1.
    """
    if every < 1:
        raise ValueError(f"every must be at least 1, got {every}")

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

        def learn(state: CollectedState) -> tuple[Any, Scalar]:
            inner = estimator.update(state.estimator, batch)
            return inner, jnp.maximum(estimator.rate(inner, state.rate), 0.0)

        # t is shared by all trials, so under vmap this stays a branch.
        inner, rate = jax.lax.cond(
            slot == 0, learn, lambda s: (s.estimator, s.rate), state
        )
        return CollectedState(batch, inner, rate)

    return Price(init, update, lambda state: state.rate)


def fixed(rate: Number) -> Price:
    """A hand-set price lambda; 0 maximises reward alone.

    Args:
      rate: lambda, reward per second.

    Raises:
      ValueError: negative or not finite.
    """
    check_numbers(rate=rate)
    return Price(lambda: (), lambda state, _: state, lambda _: jnp.asarray(rate))


def on_policy() -> Price:
    """The SMDP rate of the policy that is played: sum of r / sum of delta so far."""

    def update(state: Float[Array, "2"], decision: Decision) -> Float[Array, "2"]:
        return state + jnp.stack([decision.reward, decision.duration])

    def rate(state: Float[Array, "2"]) -> Scalar:
        return jnp.maximum(state[0], 0.0) / jnp.maximum(state[1], 1e-9)

    return Price(lambda: jnp.zeros(2), update, rate)
