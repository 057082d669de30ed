"""The paper's pooled rate estimate: one NIW over the sums of a ring of slots."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rpg_jax import conjugate, ratio
from rpg_jax.conjugate import NIW
from rpg_jax.types import Array, Batch, RateEstimator, check_unit, usable_rows


class SlotState(NamedTuple):
    """State of ``niw_slots``."""

    reward: Array  # [S] reward summed since the slot was emptied
    duration: Array  # [S] seconds, likewise
    filled: Array  # [S] bool
    birth: Array  # [S] int32; decision at which it was emptied
    cursor: Array  # int32; next slot
    step: Array  # int32; decisions seen
    niw: NIW  # carried posterior
    rate: Array  # last estimate
    rejected: Array  # int32


def niw_slots(
    num_slots: int = 128,
    *,
    prior: NIW | None = None,
    forgetting: float = 0.3,
    quantile: float = 0.95,
    age: int | None = None,
    fit_every: int | None = None,
    by_context: bool = False,
    log_duration: bool = True,
) -> RateEstimator:
    """The paper's pooled estimate: one NIW over per-slot sums, an optimistic ratio.

    A masked-in decision is added to the next slot, round robin (or, with
    ``by_context``, to the slot of its context: one slot per self-improvement chain).
    The estimate is the quantile of the predictive ratio of means, floored at 0, and 0
    before two slots are filled. Rows with a false mask are decisions that do not feed
    it; they only count as elapsed decisions, and rows of ``Batch.padding`` not even so.

    Args:
      num_slots: S.
      prior: posterior before the first fit; ``niw_prior()`` if None.
      forgetting: share of the carried posterior that each fit keeps.
      quantile: level.
      age: a slot older than this many decisions is emptied before it is fed; never if
        None (lifetime sums).
      fit_every: fit at decisions t with t % fit_every == 0 that feed (the bandit study:
        8); None fits once at the end of each update.
      by_context: the slot is batch.context rather than the next in turn.
      log_duration: model log seconds (the paper) rather than seconds.

    Raises:
      ValueError: fewer than two slots, or an argument out of range.

    Source: the paper, Algorithm 1 and its NIW estimator.
    """
    if num_slots < 2:
        raise ValueError(f"a fit needs two slots or more, got {num_slots}")
    if (age is not None and age < 0) or (fit_every is not None and fit_every < 1):
        raise ValueError(f"need age >= 0, fit_every >= 1, got {age}, {fit_every}")
    check_unit(forgetting=forgetting, quantile=None)
    if not 0.5 <= quantile < 1.0:
        raise ValueError(f"quantile must be in [0.5, 1), got {quantile}")
    first = conjugate.niw_prior() if prior is None else prior

    def init() -> SlotState:
        return SlotState(
            reward=jnp.zeros(num_slots),
            duration=jnp.zeros(num_slots),
            filled=jnp.zeros(num_slots, bool),
            birth=jnp.zeros(num_slots, jnp.int32),
            cursor=jnp.zeros((), jnp.int32),
            step=jnp.zeros((), jnp.int32),
            niw=first,
            rate=jnp.zeros(()),
            rejected=jnp.zeros((), jnp.int32),
        )

    def fit(state: SlotState) -> SlotState:
        fitted = conjugate.fit_slots(
            state.niw,
            state.reward,
            state.duration,
            state.filled,
            forgetting=forgetting,
            log_duration=log_duration,
        )
        estimate = ratio.slot_rate(
            fitted.niw, fitted.count, level=quantile, log_duration=log_duration
        )
        enough = fitted.count >= 2
        return state._replace(
            niw=fitted.niw, rate=jnp.where(enough, estimate, state.rate)
        )

    def update(state: SlotState, batch: Batch) -> SlotState:
        batch, keep, rejected = usable_rows(
            batch,
            num_contexts=num_slots if by_context else None,
        )
        elapses = jnp.ones_like(keep)
        if batch.padding is not None:
            elapses = ~batch.padding.astype(bool)

        def feed(state: SlotState, row) -> tuple[SlotState, None]:
            context, reward, duration, feeds, elapses = row
            step = state.step + elapses.astype(jnp.int32)
            slot = context if by_context else state.cursor
            slot = jnp.where(feeds, slot, 0)
            old = jnp.zeros((), bool)
            if age is not None:
                old = step - state.birth[slot] > age
            base_r = jnp.where(old, 0, state.reward[slot])
            base_d = jnp.where(old, 0, state.duration[slot])
            new = state._replace(
                reward=state.reward.at[slot].set(base_r + reward),
                duration=state.duration.at[slot].set(base_d + duration),
                filled=state.filled.at[slot].set(True),
                birth=state.birth.at[slot].set(jnp.where(old, step, state.birth[slot])),
                cursor=(state.cursor + 1) % num_slots,
            )
            state = jax.tree.map(lambda n, o: jnp.where(feeds, n, o), new, state)
            state = state._replace(step=step)
            if fit_every is not None:
                due = feeds & (step % fit_every == 0)
                state = jax.lax.cond(due, fit, lambda s: s, state)
            return state, None

        rows = (
            batch.context if by_context else jnp.zeros_like(batch.action),
            jnp.where(keep, batch.reward, 0),
            jnp.where(keep, batch.duration, 0),
            keep,
            elapses,
        )
        state, _ = jax.lax.scan(feed, state, rows)
        if fit_every is None:
            any_row = jnp.any(keep)
            state = jax.lax.cond(any_row, fit, lambda s: s, state)
        return state._replace(rejected=state.rejected + rejected)

    needs = ("context",) if by_context else ()
    return RateEstimator(init, update, lambda state, rho_k: state.rate, needs)
