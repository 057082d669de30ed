"""The paper's pooled rate estimate: one NIW over the sums of a ring of slots."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rpg_jax import checks, conjugate, quantiles
from rpg_jax.arrays import select
from rpg_jax.conjugate import NIW, Moments
from rpg_jax.quantiles import METHODS, Method
from rpg_jax.statistics import checked_niw
from rpg_jax.types import Batch, RateEstimator, check_unit, usable_rows

# Age of a slot by default, in decisions per slot: chosen by ``benchmarks.bench_drift``.
AGE_PER_SLOT = 2


class SlotFit(NamedTuple):
    """Result of ``fit_slots``."""

    niw: NIW  # posterior over (reward, log duration); carry it to the next fit
    number: Float[Array, "*batch"]  # slots used
    rejected: Int[Array, "*batch"]  # masked-in slots that were refused


def fit_slots(
    carried: NIW,
    reward: Float[ArrayLike, "*batch slots"],
    duration: Float[ArrayLike, "*batch slots"],
    mask: Bool[Array, "*batch slots"],
    *,
    forgetting: float | Float[Array, ""] = 0.3,
    log_duration: bool = True,
) -> SlotFit:
    """Refit the carried posterior to the filled slots (the paper's pooled estimate).

    The carried posterior, discounted by ``forget``, is the prior of the pairs
    (reward, log duration). With fewer than two usable slots nothing is fitted and the
    carried posterior is returned as it is.

    Args:
      carried: posterior of the last fit; ``niw_prior()`` before the first.
      reward: [..., S] reward summed in each slot.
      duration: [..., S] seconds summed in each slot, > 0.
      mask: [..., S] true where the slot is filled.
      forgetting: f in (0, 1], the share of the carried posterior that is kept.
      log_duration: model log seconds (the paper) rather than seconds.

    Raises:
      TypeError: no NIW, or no arrays of numbers.
      ValueError: shapes do not fit, or forgetting is not in (0, 1]; outside of jit also
        a carried posterior with values out of range.
    """
    carried = checked_niw(carried, dim=2)
    reward = checks.numbers("reward", reward)
    duration = checks.numbers("duration", duration)
    asked = checks.flags("mask", mask)
    checks.at_least_one_axis("reward", reward)
    checks.same_shape("reward, duration and mask", [reward, duration, asked])
    if carried.kappa.shape not in ((), reward.shape[:-1]):
        raise ValueError(
            f"the carried posterior is of batch {carried.kappa.shape}, the slots of "
            f"{reward.shape[:-1]}"
        )
    # Sums of many decisions: more than the bounds of one.
    usable = jnp.abs(reward) <= checks.MAX_VALUE
    usable &= (duration >= checks.MIN_SECONDS) & (duration <= checks.MAX_VALUE)
    keep = asked & usable
    r = jnp.where(keep, reward, 0)
    d = jnp.where(keep, duration, 1)
    d = jnp.log(d) if log_duration else jnp.where(keep, d, 0)
    rejected = jnp.sum(asked & ~usable, axis=-1, dtype=jnp.int32)
    data = _pair_moments(r, d, keep, rejected)
    carried = conjugate.expand(carried, data.number.shape)
    fitted = conjugate.posterior(conjugate.forget(carried, forgetting), data)
    niw = select(data.number >= 2, fitted, carried)
    return SlotFit(niw=niw, number=data.number, rejected=rejected)


def _pair_moments(
    r: Float[Array, "*batch slots"],
    d: Float[Array, "*batch slots"],
    keep: Bool[Array, "*batch slots"],
    rejected: Int[Array, "*batch"],
) -> Moments:
    """Moments of the pairs (r, d).

    The same two centrings as ``moments``, coordinate by coordinate: [..., S] arrays
    vectorise over slots and trials where a trailing axis of two does not.
    """
    weight = keep.astype(r.dtype)
    count = jnp.sum(weight, axis=-1)
    safe = jnp.maximum(count, 1)

    def centred(v: Array) -> tuple[Array, Array]:
        rough = jnp.sum(v, axis=-1) / safe
        deviation = (v - rough[..., None]) * weight
        shift = jnp.sum(deviation, axis=-1) / safe
        return rough + shift, (deviation - shift[..., None]) * weight

    mean_r, dev_r = centred(r)
    mean_d, dev_d = centred(d)
    rr = jnp.sum(dev_r * dev_r, axis=-1)
    rd = jnp.sum(dev_r * dev_d, axis=-1)
    dd = jnp.sum(dev_d * dev_d, axis=-1)
    return Moments(
        number=count,
        mean=jnp.stack([mean_r, mean_d], axis=-1),
        scatter=jnp.stack(
            [jnp.stack([rr, rd], axis=-1), jnp.stack([rd, dd], axis=-1)], axis=-2
        ),
        residual=jnp.zeros((*count.shape, 2), r.dtype),
        rejected=rejected,
    )


class SlotState(NamedTuple):
    """State of ``niw_slots``."""

    reward: Float[Array, " slots"]  # summed since the slot was emptied
    duration: Float[Array, " slots"]  # seconds, likewise
    filled: Bool[Array, " slots"]
    birth: Int[Array, " slots"]  # decision at which it was emptied
    cursor: Int[Array, ""]  # next slot
    step: Int[Array, ""]  # decisions seen
    niw: NIW  # carried posterior
    rate: Float[Array, ""]  # last estimate
    rejected: Int[Array, ""]


class _Ring(NamedTuple):
    """Arguments of ``niw_slots`` that its functions need."""

    forgetting: float
    quantile: float
    age: int | None
    fit_every: int | None
    by_context: bool
    log_duration: bool
    method: Method


def niw_slots(
    num_slots: int = 128,
    *,
    prior: NIW | None = None,
    forgetting: float = 0.3,
    quantile: float = 0.95,
    age: int | Literal["auto"] | None = "auto",
    fit_every: int | None = None,
    by_context: bool = False,
    log_duration: bool = True,
    method: Method = "auto",
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
        None (lifetime sums); twice the number of slots if "auto".
      fit_every: fit at decisions t with t % fit_every == 0 that feed (the bandit study:
        8); None fits once at the end of each update.
      by_context: the slot is batch.context rather than the next in turn.
      log_duration: model log seconds (the paper) rather than seconds.
      method: of the quantile. ``analytic`` always uses moments (what old records mean)
        and ``sampled`` 1,000 simulated batches (the paper); ``auto`` samples where
        ``in_analytic_range`` says no. Under vmap ``auto`` costs what ``sampled`` does.

    Raises:
      ValueError: fewer than two slots, an unknown method, or an argument out of range.

    Source: the paper, Algorithm 1 and its NIW estimator.
    """
    if checks.count("num_slots", num_slots) < 2:
        raise ValueError(f"a fit needs two slots or more, got {num_slots}")
    if age == "auto":
        age = AGE_PER_SLOT * num_slots
    for name, number, least in (("age", age, 0), ("fit_every", fit_every, 1)):
        if number is not None:
            checks.count(name, number, least=least, most=2**30)
    check_unit(forgetting=forgetting, quantile=None)
    _check_choices(quantile, method)
    ring = _Ring(forgetting, quantile, age, fit_every, by_context, log_duration, method)
    first = one_pair_prior(prior)
    return RateEstimator(
        init=lambda: _empty(num_slots, first),
        update=lambda state, batch: _update(ring, state, batch),
        rate=lambda state, rho_k: state.rate,
        needs=("context",) if by_context else (),
    )


def _check_choices(quantile: float, method: Method) -> None:
    checks.scalar("quantile", quantile)
    if not 0.5 <= quantile < 1.0:
        raise ValueError(f"quantile must be in [0.5, 1), got {quantile}")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")


def one_pair_prior(prior: NIW | None) -> NIW:
    """The prior of one NIW over pairs; the vague default if None.

    Raises:
      TypeError: no NIW.
      ValueError: it has batch dimensions, is not over pairs, or holds bad values.
    """
    if prior is None:
        return conjugate.niw_prior()
    prior = checked_niw(prior, dim=2)
    if prior.kappa.shape:
        raise ValueError(f"prior must be a single NIW, got batch {prior.kappa.shape}")
    return prior


def _empty(num_slots: int, prior: NIW) -> SlotState:
    return SlotState(
        reward=jnp.zeros(num_slots),
        duration=jnp.zeros(num_slots),
        filled=jnp.zeros(num_slots, bool),
        birth=jnp.zeros(num_slots, jnp.int32),
        cursor=jnp.zeros((), jnp.int32),
        step=jnp.zeros((), jnp.int32),
        niw=prior,
        rate=jnp.zeros(()),
        rejected=jnp.zeros((), jnp.int32),
    )


def _fit(ring: _Ring, state: SlotState) -> SlotState:
    fitted = fit_slots(
        state.niw,
        state.reward,
        state.duration,
        state.filled,
        forgetting=ring.forgetting,
        log_duration=ring.log_duration,
    )
    estimate = quantiles.slot_rate_by(
        ring.method,
        # Draws of its own at every fit, and the same ones in a second run.
        jax.random.fold_in(jax.random.key(0), state.step),
        fitted.niw,
        fitted.number,
        level=ring.quantile,
        max_count=state.reward.shape[-1],
        log_duration=ring.log_duration,
    )
    enough = fitted.number >= 2
    return state._replace(niw=fitted.niw, rate=jnp.where(enough, estimate, state.rate))


class _Row(NamedTuple):
    """One decision of a batch."""

    context: Int[Array, ""]
    reward: Float[Array, ""]
    duration: Float[Array, ""]
    feeds: Bool[Array, ""]
    elapses: Bool[Array, ""]


def _feed(ring: _Ring, state: SlotState, row: _Row) -> SlotState:
    """Add one decision to its slot, and fit again where that is due."""
    num_slots = state.reward.shape[0]
    step = state.step + row.elapses.astype(jnp.int32)
    slot = row.context if ring.by_context else state.cursor
    slot = jnp.where(row.feeds, slot, 0)
    old = jnp.zeros((), bool)
    if ring.age is not None:
        old = step - state.birth[slot] > ring.age
    base_r = jnp.where(old, 0, state.reward[slot])
    base_d = jnp.where(old, 0, state.duration[slot])
    new = state._replace(
        reward=state.reward.at[slot].set(base_r + row.reward),
        duration=state.duration.at[slot].set(base_d + row.duration),
        filled=state.filled.at[slot].set(True),
        birth=state.birth.at[slot].set(jnp.where(old, step, state.birth[slot])),
        cursor=(state.cursor + 1) % num_slots,
    )
    fed: SlotState = select(row.feeds, new, state)
    state = fed._replace(step=step)
    if ring.fit_every is not None:
        due = row.feeds & (step % ring.fit_every == 0)
        state = jax.lax.cond(due, lambda s: _fit(ring, s), lambda s: s, state)
    return state


def _update(ring: _Ring, state: SlotState, batch: Batch) -> SlotState:
    num_slots = state.reward.shape[0]
    batch, keep, rejected = usable_rows(
        batch, num_contexts=num_slots if ring.by_context else None
    )
    elapses = jnp.ones_like(keep)
    if batch.padding is not None:
        elapses = ~batch.padding.astype(bool)
    rows = _Row(
        batch.context if ring.by_context else jnp.zeros(keep.shape, jnp.int32),
        jnp.where(keep, batch.reward, 0),
        jnp.where(keep, batch.duration, 0),
        keep,
        elapses,
    )
    state, _ = jax.lax.scan(lambda s, row: (_feed(ring, s, row), None), state, rows)
    if ring.fit_every is None:
        state = jax.lax.cond(jnp.any(keep), lambda s: _fit(ring, s), lambda s: s, state)
    return state._replace(rejected=state.rejected + rejected)
