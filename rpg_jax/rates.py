"""Estimators of the reward rate of the greedy policy, behind one interface.

Each factory returns a ``RateEstimator``. ``niw`` keeps a posterior per (context, arm)
and plugs its means into one Dinkelbach step; ``niw_slots`` is the paper's pooled
posterior; ``robbins_monro``, ``neural`` and ``empirical`` are alternatives to them.
The pooled ones estimate the rate of whatever they are fed: feed them greedy decisions.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rpg_jax import conjugate, dinkelbach, ratio
from rpg_jax.conjugate import NIW, Moments
from rpg_jax.types import Array, Batch, RateEstimator, usable_rows


class CellState(NamedTuple):
    """State of ``niw``."""

    cells: NIW  # batch shape [X, A]
    count: Array  # [X, A]; observations a cell has seen
    rejected: Array  # int32


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


class RobbinsMonroState(NamedTuple):
    """State of ``robbins_monro``."""

    rate: Array
    duration: Array  # running mean of seconds, the unit of the step
    count: Array
    step: Array  # int32; updates that had data
    rejected: Array  # int32


class NeuralState(NamedTuple):
    """State of ``neural``."""

    params: Any
    opt_state: Any
    scale: Array  # [2]; unit of reward and of seconds, fixed by the first data
    ready: Array  # bool
    skipped: Array  # int32; gradient steps left out because they were not finite
    rejected: Array  # int32


def _limit(batch: Batch) -> float:
    return conjugate.magnitude_limit(batch.reward.dtype)


def niw(
    num_contexts: int,
    num_arms: int,
    *,
    prior: NIW | None = None,
    context_probs: Array | None = None,
    log_duration: bool = False,
    forgetting: float = 1.0,
    quantile: float | None = None,
) -> RateEstimator:
    """A NIW posterior over (reward, duration) in each cell, and a Dinkelbach step.

    rate(state, rho_k) = R_u / D_u of u(x) = argmax_a m_r(x, a) - rho_k m_d(x, a), means
    over contexts of the cells' posterior means. Arms without data are not considered (a
    prior is no evidence) and neither are contexts without any; 0 before any data.

    Args:
      num_contexts: X.
      num_arms: A, SKIP included where there is one.
      prior: unbatched ``niw_prior``; the vague default if None.
      context_probs: [X] probabilities of the contexts; uniform if None.
      log_duration: model log seconds; a cell's mean is then exp(m + v / 2).
      forgetting: discount of a cell's posterior before each batch that touches it.
      quantile: None for the plug-in rate, else the level of an (optimistic) quantile of
        the greedy policy's rate under the posterior of the means.

    Raises:
      ValueError: a size, forgetting or quantile out of range.
    """
    if num_contexts < 1 or num_arms < 1:
        raise ValueError(f"need contexts and arms, got {num_contexts} x {num_arms}")
    _check_unit(forgetting=forgetting, quantile=quantile)
    base = conjugate.niw_prior() if prior is None else prior
    shape = (num_contexts, num_arms)

    def init() -> CellState:
        cells = jax.tree.map(lambda p: jnp.broadcast_to(p, shape + p.shape), base)
        return CellState(cells, jnp.zeros(shape), jnp.zeros((), jnp.int32))

    def update(state: CellState, batch: Batch) -> CellState:
        keep, rejected = usable_rows(
            batch, limit=_limit(batch), num_contexts=num_contexts, num_arms=num_arms
        )
        seconds = jnp.where(keep, batch.duration, 1)
        second = jnp.log(seconds) if log_duration else seconds
        pairs = jnp.stack([jnp.where(keep, batch.reward, 0), second], axis=-1)
        flat = jnp.where(keep, batch.context * num_arms + batch.action, 0)
        data = conjugate.segment_moments(pairs, flat, num_contexts * num_arms, keep)
        data = Moments(
            *(v.reshape(shape + v.shape[1:]) for v in data[:4]), rejected=data.rejected
        )
        cells = state.cells
        if forgetting != 1.0:
            touched = data.count > 0
            faded = conjugate.forget(cells, forgetting)
            cells = jax.tree.map(
                lambda new, old: jnp.where(
                    touched.reshape(shape + (1,) * (new.ndim - 2)), new, old
                ),
                faded,
                cells,
            )
        # A posterior given no data is its prior, up to the guard on definiteness.
        return CellState(
            cells=_posterior(cells, data),
            count=state.count + data.count,
            rejected=state.rejected + rejected,
        )

    def rate(state: CellState, rho_k: Array) -> Array:
        cells, tried = state.cells, state.count > 0
        reward, duration = cells.mean[..., 0], cells.mean[..., 1]
        # Posterior covariance of the cell's mean; finite once nu > 3.
        spread = cells.scale / jnp.maximum(cells.nu - 3, 1)[..., None, None]
        if log_duration:
            # The cap keeps an absurd variance from overflowing; exp(40) seconds is.
            duration = jnp.exp(jnp.minimum(duration + spread[..., 1, 1] / 2, 40))
        rho_k = jnp.asarray(rho_k, reward.dtype)
        policy = dinkelbach.greedy_policy(reward, duration, rho_k, mask=tried)
        plug_in = dinkelbach.greedy_rate(
            reward, duration, rho_k, context_probs=context_probs, mask=tried
        )
        if quantile is None:
            return plug_in
        unit = duration if log_duration else jnp.ones_like(duration)
        variance = (
            spread[..., 0, 0]
            - 2 * plug_in * unit * spread[..., 0, 1]
            + jnp.square(plug_in * unit) * spread[..., 1, 1]
        ) / cells.kappa
        probs = dinkelbach.context_weights(reward, context_probs, tried)
        chosen = jnp.take_along_axis(variance, policy[:, None], axis=-1)[:, 0]
        _, time = dinkelbach.policy_totals(
            policy, reward, duration, context_probs=context_probs, mask=tried
        )
        total = jnp.sum(jnp.square(probs) * jnp.where(probs > 0, chosen, 0))
        sd = jnp.sqrt(jnp.maximum(total, float(jnp.finfo(total.dtype).tiny)))
        z = NormalDist().inv_cdf(quantile)
        return jnp.where(time > 0, plug_in + z * sd / jnp.where(time > 0, time, 1), 0)

    return RateEstimator(init, update, rate)


def _posterior(cells: NIW, data: Moments) -> NIW:
    fitted = conjugate.posterior(cells, data)
    untouched = data.count <= 0
    return jax.tree.map(
        lambda new, old: jnp.where(
            untouched.reshape(untouched.shape + (1,) * (new.ndim - 2)), old, new
        ),
        fitted,
        cells,
    )


def _check_unit(*, forgetting: float, quantile: float | None) -> None:
    if not 0.0 < forgetting <= 1.0:
        raise ValueError(f"forgetting must be in (0, 1], got {forgetting}")
    if quantile is not None and not 0.0 < quantile < 1.0:
        raise ValueError(f"quantile must be in (0, 1), got {quantile}")


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
    it; they only count as elapsed decisions.

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
    _check_unit(forgetting=forgetting, quantile=quantile)
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
        keep, rejected = usable_rows(
            batch,
            limit=_limit(batch),
            num_contexts=num_slots if by_context else None,
        )

        def feed(state: SlotState, row) -> tuple[SlotState, None]:
            context, reward, duration, feeds = row
            step = state.step + 1
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
        )
        state, _ = jax.lax.scan(feed, state, rows)
        if fit_every is None:
            any_row = jnp.any(keep)
            state = jax.lax.cond(any_row, fit, lambda s: s, state)
        return state._replace(rejected=state.rejected + rejected)

    return RateEstimator(init, update, lambda state, rho_k: state.rate)


def robbins_monro(
    step_size: float | Callable[[Array], Array],
) -> RateEstimator:
    """Stochastic approximation of the root of E[r - rho delta].

    rho <- (rho + a r / m) / (1 + a delta / m) with m the running mean of delta: the
    implicit form of rho + a (r - rho delta) / m. It has the same root, and no duration,
    however long, can make it overshoot.

    Args:
      step_size: a > 0, or a schedule of the number of earlier updates, as in optax.

    Source: Robbins and Monro (1951); Toulis and Airoldi (2017) for the implicit form.
    """

    def init() -> RobbinsMonroState:
        return RobbinsMonroState(
            rate=jnp.zeros(()),
            duration=jnp.zeros(()),
            count=jnp.zeros(()),
            step=jnp.zeros((), jnp.int32),
            rejected=jnp.zeros((), jnp.int32),
        )

    def update(state: RobbinsMonroState, batch: Batch) -> RobbinsMonroState:
        keep, rejected = usable_rows(batch, limit=_limit(batch))
        number = jnp.sum(keep, dtype=batch.reward.dtype)
        safe = jnp.maximum(number, 1)
        reward = jnp.sum(jnp.where(keep, batch.reward, 0)) / safe
        duration = jnp.sum(jnp.where(keep, batch.duration, 0)) / safe
        count = state.count + number
        mean = state.duration + (duration - state.duration) * (
            number / jnp.maximum(count, 1)
        )
        a = step_size(state.step) if callable(step_size) else step_size
        a = jnp.asarray(a, reward.dtype) / jnp.where(mean > 0, mean, 1)
        moved = (state.rate + a * reward) / (1 + a * duration)
        fed = number > 0
        return RobbinsMonroState(
            rate=jnp.where(fed, moved, state.rate),
            duration=jnp.where(fed, mean, state.duration),
            count=count,
            step=state.step + fed.astype(jnp.int32),
            rejected=state.rejected + rejected,
        )

    return RateEstimator(init, update, lambda state, rho_k: state.rate)


def empirical() -> RateEstimator:
    """Sum of rewards over sum of seconds of everything it was fed; 0 before data.

    Fed every decision it is the on-policy rate of the SMDP policy gradient; fed greedy
    decisions, the greedy policy's. Kept as centred means, which a long stream does not
    saturate in float32.
    """

    def init() -> Moments:
        return conjugate.empty_moments()

    def update(state: Moments, batch: Batch) -> Moments:
        keep, rejected = usable_rows(batch, limit=_limit(batch))
        pairs = jnp.stack(
            [
                jnp.where(keep, batch.reward, 0),
                jnp.where(keep, batch.duration, 0),
            ],
            axis=-1,
        )
        merged = conjugate.merge(state, conjugate.moments(pairs, keep))
        return merged._replace(rejected=state.rejected + rejected)

    def rate(state: Moments, rho_k: Array) -> Array:
        reward, duration = state.mean[..., 0], state.mean[..., 1]
        seen = duration > 0
        return jnp.where(seen, reward / jnp.where(seen, duration, 1), 0)

    return RateEstimator(init, update, rate)


def neural(
    apply_fn: Callable[[Any, Array], Array],
    params: Any,
    optimizer: optax.GradientTransformation,
    *,
    num_steps: int,
    contexts: Array,
    context_probs: Array | None = None,
) -> RateEstimator:
    """A network of mean reward and seconds, and a Dinkelbach step on its predictions.

    ``apply_fn(params, context)`` maps contexts [N, ...] to [N, A, 2]: the first output
    is the mean reward, the second goes through softplus to mean seconds, both in units
    that the first batch with data fixes (its root mean squares). Each update takes
    ``num_steps`` optimizer steps on the squared error of the batch's rows: feed it
    samples of a replay buffer. Squared error, since a rate needs means, not medians.

    Args:
      apply_fn: e.g. ``flax.linen.Module.apply``.
      params: initial parameters.
      optimizer: an optax optimizer; clip gradients there if durations have outliers.
      num_steps: static number of steps per update.
      contexts: [N, ...] contexts whose average defines the rate, in the form that
        ``Batch.context`` has.
      context_probs: [N]; uniform if None.

    Raises:
      ValueError: num_steps < 1.
    """
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, got {num_steps}")

    def init() -> NeuralState:
        return NeuralState(
            params=params,
            opt_state=optimizer.init(params),
            scale=jnp.ones(2),
            ready=jnp.zeros((), bool),
            skipped=jnp.zeros((), jnp.int32),
            rejected=jnp.zeros((), jnp.int32),
        )

    def predict(weights: Any, context: Array) -> tuple[Array, Array]:
        out = apply_fn(weights, context)
        return out[..., 0], jax.nn.softplus(out[..., 1])

    def update(state: NeuralState, batch: Batch) -> NeuralState:
        keep, rejected = usable_rows(batch, limit=_limit(batch))
        number = jnp.maximum(jnp.sum(keep, dtype=batch.reward.dtype), 1)
        target = jnp.stack(
            [jnp.where(keep, batch.reward, 0), jnp.where(keep, batch.duration, 0)]
        )
        peak = jnp.maximum(jnp.max(jnp.abs(target), axis=-1), 1e-30)
        # Scaled by the peak first: squares of 1e-30 or 1e15 would leave float32.
        size = peak * jnp.sqrt(
            jnp.sum(jnp.square(target / peak[:, None]), axis=-1) / number
        )
        seen = jnp.any(keep)
        size = jnp.where(size > 0, size, 1)
        scale = jnp.where(state.ready | ~seen, state.scale, size)
        target = target / scale[:, None]
        action = jnp.where(keep, batch.action, 0)

        def loss(weights: Any) -> Array:
            reward, duration = predict(weights, batch.context)
            index = action[:, None]
            error = jnp.stack(
                [
                    jnp.take_along_axis(reward, index, axis=-1)[:, 0],
                    jnp.take_along_axis(duration, index, axis=-1)[:, 0],
                ]
            )
            error = jnp.where(keep[None, :], error - target, 0)
            return jnp.sum(error * error) / number

        def step(carry, _):
            weights, opt_state, skipped = carry
            grads = jax.grad(loss)(weights)
            moves, new_opt = optimizer.update(grads, opt_state, weights)
            new = optax.apply_updates(weights, moves)
            fine = jnp.isfinite(optax.global_norm(grads))
            fine &= jnp.isfinite(optax.global_norm(new))
            accept = fine & seen

            def pick(n, o):
                return jnp.where(accept, n, o)

            return (
                jax.tree.map(pick, new, weights),
                jax.tree.map(pick, new_opt, opt_state),
                skipped + (seen & ~fine).astype(jnp.int32),
            ), None

        (weights, opt_state, skipped), _ = jax.lax.scan(
            step, (state.params, state.opt_state, state.skipped), length=num_steps
        )
        return NeuralState(
            params=weights,
            opt_state=opt_state,
            scale=scale,
            ready=state.ready | seen,
            skipped=skipped,
            rejected=state.rejected + rejected,
        )

    def rate(state: NeuralState, rho_k: Array) -> Array:
        reward, duration = predict(state.params, contexts)
        unit = state.scale[0] / state.scale[1]
        # A softplus may round to 0 seconds; no action is free.
        duration = jnp.maximum(duration, float(jnp.finfo(duration.dtype).eps))
        estimate = dinkelbach.greedy_rate(
            reward,
            duration,
            jnp.asarray(rho_k, reward.dtype) / unit,
            context_probs=context_probs,
        )
        return jnp.where(state.ready, estimate * unit, 0)

    return RateEstimator(init, update, rate)


def fixed_point(
    estimator: RateEstimator, state: Any, rho: Array | float, *, num_steps: int = 8
) -> Array:
    """Iterate rho <- rate(state, rho): Dinkelbach on the estimator's own tables."""
    start = jnp.asarray(rho, jnp.zeros(()).dtype)
    return jax.lax.fori_loop(
        0, num_steps, lambda _, value: estimator.rate(state, value), start
    )
