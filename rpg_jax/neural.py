"""A neural rate estimator: predicted means in place of posterior means."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree, Shaped

from rpg_jax import checks, dinkelbach
from rpg_jax import units as running
from rpg_jax.arrays import float_info, select
from rpg_jax.types import Batch, RateEstimator, checked_weights, usable_rows
from rpg_jax.units import Units

if TYPE_CHECKING:
    import optax

# (params, contexts) -> [N, A, 2]; flax's ``Module.apply`` says no more of its result.
Apply = Callable[[PyTree, Shaped[Array, "N ..."]], Any]


UnitsRule = Literal["running", "first"]


class _Net(NamedTuple):
    """Arguments of ``neural`` that its functions need."""

    apply_fn: Apply
    optimizer: optax.GradientTransformation
    num_steps: int
    contexts: Shaped[Array, "N ..."]
    context_probs: Float[ArrayLike, " N"] | None
    running: bool


class NeuralState(NamedTuple):
    """State of ``neural``."""

    params: PyTree
    opt_state: Any
    units: Units  # of reward, seconds and features
    ready: Bool[Array, ""]
    skipped: Int[Array, ""]  # gradient steps left out because they were not finite
    rejected: Int[Array, ""]


def neural(
    apply_fn: Apply,
    params: PyTree,
    optimizer: optax.GradientTransformation,
    *,
    num_steps: int,
    contexts: Shaped[Array, "N ..."],
    context_probs: Float[ArrayLike, " N"] | None = None,
    units: UnitsRule = "running",
) -> RateEstimator:
    """A network of mean reward and seconds, and a Dinkelbach step on its predictions.

    ``apply_fn(params, context)`` maps contexts [N, ...] to [N, A, 2]: the first output
    is the mean reward, the second goes through softplus to mean seconds, both in units
    of their mean size. Contexts that are floats are features, and come standardised.
    Each update takes ``num_steps`` optimizer steps on the squared error
    of the batch's rows: feed it samples of a replay buffer. Squared error, since a rate
    needs means, not medians.

    Args:
      apply_fn: e.g. ``flax.linen.Module.apply``.
      params: initial parameters.
      optimizer: an optax optimizer; clip gradients there if durations have outliers.
      num_steps: static number of steps per update.
      contexts: [N, ...] contexts whose average defines the rate, in the form that
        ``Batch.context`` has.
      context_probs: [N]; uniform if None.
      units: ``running`` takes units of reward, seconds and features from the last 1,024
        rows or so; ``first`` the root mean squares of the first batch's rewards and
        seconds for good, and features as they are (what old records mean).

    Raises:
      ValueError: num_steps < 1, unknown units, or context_probs that are not N
        weights >= 0.
    """
    num_steps = checks.count("num_steps", num_steps)
    contexts = _checked_contexts(contexts)
    if not callable(apply_fn) or not hasattr(optimizer, "update"):
        raise TypeError("apply_fn must be a function, and optimizer one of optax")
    _check_units(units)
    context_probs = checked_weights(context_probs, np.shape(contexts)[0])
    move = units == "running"
    net = _Net(apply_fn, optimizer, num_steps, contexts, context_probs, move)

    def init() -> NeuralState:
        return NeuralState(
            params=params,
            opt_state=optimizer.init(params),
            units=running.empty_units(contexts),
            ready=jnp.zeros((), bool),
            skipped=jnp.zeros((), jnp.int32),
            rejected=jnp.zeros((), jnp.int32),
        )

    return RateEstimator(
        init,
        lambda state, batch: _update(net, state, batch),
        lambda state, rho_k: _rate(net, state, rho_k),
        needs=("context", "action"),
    )


def _check_units(units: UnitsRule) -> None:
    if units not in ("running", "first"):
        raise ValueError(f"units must be running or first, got {units!r}")


def _checked_contexts(contexts: Shaped[Array, "N ..."]) -> Shaped[Array, "N ..."]:
    known = checks.real("contexts", contexts)
    if not np.size(known) or not np.ndim(known):
        raise ValueError(f"contexts must be [N, ...], got shape {np.shape(known)}")
    checks.within("contexts", known)
    return jnp.asarray(known)


def _rate(net: _Net, state: NeuralState, rho_k: Float[Array, ""]) -> Float[Array, ""]:
    """A Dinkelbach step on the predictions for the contexts that define the rate."""
    contexts = net.contexts
    if net.running:
        contexts = running.standardised(state.units, contexts)
    reward, duration = _predict(net.apply_fn, state.params, contexts)
    scale = running.sizes(state.units)
    unit = scale[0] / scale[1]
    # A softplus may round to 0 seconds; no action is free.
    duration = jnp.maximum(duration, float(float_info(duration.dtype).eps))
    estimate = dinkelbach.dinkelbach_step(
        reward,
        duration,
        jnp.asarray(rho_k, reward.dtype) / unit,
        context_probs=net.context_probs,
    )
    return jnp.where(state.ready, estimate * unit, 0)


def _predict(
    apply_fn: Apply, params: PyTree, context: Shaped[Array, "N ..."]
) -> tuple[Float[Array, "N A"], Float[Array, "N A"]]:
    """Mean reward and mean seconds of every arm, in the state's units."""
    out: Float[Array, "N A 2"] = apply_fn(params, context)
    return out[..., 0], jax.nn.softplus(out[..., 1])


def _update(net: _Net, state: NeuralState, batch: Batch) -> NeuralState:
    """``num_steps`` optimizer steps on the batch's squared errors."""
    tables = jax.eval_shape(
        lambda p, c: _predict(net.apply_fn, p, c), state.params, batch.context
    )
    num_arms = tables[0].shape[-1]
    batch, keep, rejected = usable_rows(batch, num_arms=num_arms, features=True)
    number = jnp.maximum(jnp.sum(keep, dtype=batch.reward.dtype), 1)
    target = jnp.stack(
        [jnp.where(keep, batch.reward, 0), jnp.where(keep, batch.duration, 0)]
    )
    seen = jnp.any(keep)
    units, context = _measured(net, state, batch.context, target, keep)
    target = target / running.sizes(units)[:, None]
    index = jnp.where(keep, batch.action, 0)[:, None]

    def loss(weights: PyTree) -> Float[Array, ""]:
        reward, duration = _predict(net.apply_fn, weights, context)
        error = jnp.stack(
            [
                jnp.take_along_axis(reward, index, axis=-1)[:, 0],
                jnp.take_along_axis(duration, index, axis=-1)[:, 0],
            ]
        )
        error = jnp.where(keep[None, :], error - target, 0)
        return jnp.sum(error * error) / number

    carry = (state.params, state.opt_state, state.skipped)
    (weights, opt_state, skipped), _ = jax.lax.scan(
        lambda now, _: (_step(loss, net.optimizer, seen, *now), None),
        carry,
        length=net.num_steps,
    )
    return NeuralState(
        params=weights,
        opt_state=opt_state,
        units=units,
        ready=state.ready | seen,
        skipped=skipped,
        rejected=state.rejected + rejected,
    )


def _measured(
    net: _Net,
    state: NeuralState,
    context: Shaped[Array, "B ..."],
    target: Float[Array, "2 B"],
    keep: Bool[Array, " B"],
) -> tuple[Units, Shaped[Array, "B ..."]]:
    """The units after a batch, and its contexts as the network sees them."""
    if net.running:
        units = running.moved(state.units, target, context, keep)
        seen = running.standardised(units, context)
        # A row that is not kept holds zeros, which standardised may be anything.
        rows = keep.reshape((-1,) + (1,) * (seen.ndim - 1))
        return units, jnp.where(rows, seen, jnp.zeros_like(seen))
    first = _first_units(target, jnp.maximum(jnp.sum(keep, dtype=target.dtype), 1))
    kept = state.ready | ~jnp.any(keep)
    scale = jnp.where(kept, state.units.scale, first)
    return state.units._replace(scale=scale), context


def _first_units(
    target: Float[Array, "2 B"], number: Float[Array, ""]
) -> Float[Array, " 2"]:
    """Root mean squares of reward and seconds; 1 where all of them are 0."""
    peak = jnp.maximum(jnp.max(jnp.abs(target), axis=-1), 1e-30)
    # Scaled by the peak first: squares of 1e-30 or 1e15 would leave float32.
    size = peak * jnp.sqrt(
        jnp.sum(jnp.square(target / peak[:, None]), axis=-1) / number
    )
    return jnp.where(size > 0, size, 1)


def _step(
    loss: Callable[[PyTree], Float[Array, ""]],
    optimizer: optax.GradientTransformation,
    seen: Bool[Array, ""],
    weights: PyTree,
    opt_state: Any,
    skipped: Int[Array, ""],
) -> tuple[PyTree, Any, Int[Array, ""]]:
    """One optimizer step, left out where there are no data or it is not finite."""
    import optax

    grads = jax.grad(loss)(weights)
    # optax promotes an integer count, which a strict user may have forbidden.
    with jax.numpy_dtype_promotion("standard"):
        moves, new_opt = optimizer.update(grads, opt_state, weights)
        new = optax.apply_updates(weights, moves)
    fine = _all_finite((grads, new))
    accept = fine & seen
    return (
        select(accept, new, weights),
        select(accept, new_opt, opt_state),
        skipped + (seen & ~fine).astype(jnp.int32),
    )


def _all_finite(tree: PyTree) -> Bool[Array, ""]:
    leaves = jax.tree.leaves(tree)
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
