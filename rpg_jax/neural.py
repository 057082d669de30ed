"""A neural rate estimator: predicted means in place of posterior means."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rpg_jax import dinkelbach
from rpg_jax.types import (
    Array,
    Batch,
    RateEstimator,
    checked_weights,
    usable_rows,
)


class NeuralState(NamedTuple):
    """State of ``neural``."""

    params: Any
    opt_state: Any
    scale: Array  # [2]; unit of reward and of seconds, fixed by the first data
    ready: Array  # bool
    skipped: Array  # int32; gradient steps left out because they were not finite
    rejected: Array  # int32


def _all_finite(tree: Any) -> Array:
    leaves = jax.tree.leaves(tree)
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


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
      ValueError: num_steps < 1, or context_probs that are not N weights >= 0.
    """
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, got {num_steps}")
    context_probs = checked_weights(context_probs, np.shape(contexts)[0])

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
        num_arms = jax.eval_shape(predict, state.params, batch.context)[0].shape[-1]
        batch, keep, rejected = usable_rows(batch, num_arms=num_arms, features=True)
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
            # optax promotes an integer count, which a strict user may have forbidden.
            with jax.numpy_dtype_promotion("standard"):
                moves, new_opt = optimizer.update(grads, opt_state, weights)
                new = optax.apply_updates(weights, moves)
            fine = _all_finite((grads, new))
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

    return RateEstimator(init, update, rate, needs=("context", "action"))
