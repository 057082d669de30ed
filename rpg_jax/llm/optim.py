"""AdamW on float32 masters, with the checks that a long run needs.

The stored parameters are the float32 masters; the model casts them to the compute type
inside its forward pass. Adam in pure bfloat16 at a learning rate of 1e-6 would round
almost every change away (bfloat16 resolves 1 part in 256), which is why the share of
weights that changed is a metric of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

# Per-channel parameters (norms, decays, biases): neither decayed nor rounded.
_VECTORS = ("norm", "bias", "A_log")


class StepInfo(NamedTuple):
    """What one optimizer step did.

    Attributes:
        grad_norm: global norm of the gradient before clipping.
        changed: share of the stored float32 weights that differ after the step.
        changed_compute: the same after rounding to the compute type: what the sampler
            sees.
        skipped: 1 where the gradient was not finite and nothing was changed.
    """

    grad_norm: Float[Array, ""]
    changed: Float[Array, ""]
    changed_compute: Float[Array, ""]
    skipped: Int[Array, ""]


def adamw(
    learning_rate: float | optax.Schedule,
    *,
    weight_decay: float = 0.01,
    grad_clip: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> optax.GradientTransformation:
    """AdamW after a global-norm clip; norms, biases and decays are not decayed.

    Args:
        learning_rate: step size, or a schedule over optimizer steps.
        weight_decay: decoupled decay of the matrices (Loshchilov & Hutter 2019).
        grad_clip: largest global norm of the gradient; 0 or less turns the clip off.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: added to the root of the second moment.
    """
    clip = optax.clip_by_global_norm(grad_clip) if grad_clip > 0 else optax.identity()
    return optax.chain(
        clip,
        optax.adamw(
            learning_rate,
            b1=b1,
            b2=b2,
            eps=eps,
            weight_decay=weight_decay,
            mask=decay_mask,
            mu_dtype=jnp.float32,
        ),
    )


def is_matrix(path: tuple[Any, ...]) -> bool:
    """Whether the leaf at a tree path is a matrix, not a norm, bias or decay."""
    name = jax.tree_util.keystr(path)
    return not any(word in name for word in _VECTORS)


def decay_mask(params: PyTree) -> PyTree:
    """True where weight decay applies: matrices other than the short convolution."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: is_matrix(path) and "conv" not in jax.tree_util.keystr(path),
        params,
    )


def to_masters(params: PyTree) -> PyTree:
    """Every leaf as float32."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)


def compute_view(params: PyTree, dtype: Any) -> PyTree:
    """Matrices rounded to `dtype`, norms and decays untouched.

    Casting early gives the forward pass the very numbers that it would get by casting
    late, so a sampler that holds this view agrees with a trainer that holds masters.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf.astype(dtype) if is_matrix(path) else leaf, params
    )


def step(
    optimizer: optax.GradientTransformation,
    params: PyTree,
    opt_state: PyTree,
    grads: PyTree,
    *,
    compute_dtype: Any = jnp.float32,
) -> tuple[PyTree, PyTree, StepInfo]:
    """One optimizer step that never lets a NaN or infinity into the weights.

    Args:
        optimizer: from `adamw`.
        params: float32 masters.
        opt_state: of `optimizer`.
        grads: as `params`.
        compute_dtype: in which `changed_compute` is judged.

    Returns:
        `(params, opt_state, StepInfo)`; both are the old ones if the gradient's norm
        is not finite.
    """
    grad_norm = global_norm(grads)
    finite = jnp.isfinite(grad_norm)
    # optax raises a Python float to an int32 power, which strict callers forbid.
    with jax.numpy_dtype_promotion("standard"):
        updates, new_state = optimizer.update(grads, opt_state, params)
    new_params = optax.apply_updates(params, updates)

    def keep(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)

    new_params, new_state = keep(new_params, params), keep(new_state, opt_state)
    info = StepInfo(
        grad_norm=grad_norm,
        changed=changed_share(params, new_params, jnp.float32),
        changed_compute=changed_share(params, new_params, compute_dtype),
        skipped=1 - finite.astype(jnp.int32),
    )
    return new_params, new_state, info


def global_norm(tree: PyTree) -> Float[Array, ""]:
    """Euclidean norm of all leaves together, float32."""
    leaves: list[Array] = jax.tree.leaves(tree)
    squares = [jnp.sum(jnp.square(x.astype(jnp.float32))) for x in leaves]
    total: Array = sum(squares, start=jnp.float32(0))
    return jnp.sqrt(total)


def changed_share(old: PyTree, new: PyTree, dtype: Any) -> Float[Array, ""]:
    """Share of weights that differ between two trees once both are cast to `dtype`."""

    def count(a: Array, b: Array) -> Array:
        differs = a.astype(dtype) != b.astype(dtype)
        size: Array = jnp.float32(a.size)
        return jnp.mean(differs, dtype=jnp.float32) * size

    counts = jax.tree.leaves(jax.tree.map(count, old, new))
    total = sum(leaf.size for leaf in jax.tree.leaves(old))
    changed: Array = sum(counts, start=jnp.float32(0)) / jnp.float32(max(1, total))
    return changed
