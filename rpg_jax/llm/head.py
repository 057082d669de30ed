"""Chunked language-model head: log-probability and entropy without the logits.

A batch of 64 x 2,048 tokens over 248,320 words is 130 GB of float32 logits. PPO needs
two numbers per token, so the head walks along the sequence, makes the logits of one
chunk, reduces them and drops them; the backward pass makes them again. Peak memory is
one chunk, and the gradient of the head's weight is summed in float32.
"""

from __future__ import annotations

import functools
from typing import Any, Generic, NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

_CHUNK_ELEMENTS = 2**27  # 512 MiB of float32 logits


class HeadOutput(NamedTuple):
    """Per-token results of the head.

    Attributes:
        log_prob: log-probability of the target, nats.
        entropy: of the distribution sampled from, nats.
    """

    log_prob: Float[Array, "B T"]
    entropy: Float[Array, "B T"]


T = TypeVar("T", Array, np.ndarray)


class MaskTable(NamedTuple, Generic[T]):
    """Logit masks by reference: what grammars need, at 4 bytes per token.

    Attributes:
        table: the M different masks; True = may be sampled.
        which: of them held when the token was sampled.
    """

    table: Bool[T, "M V"]
    which: Int[T, "B T"]


LogitMask = Array | MaskTable[Array] | None


def chunk_length(batch: int, vocab: int, elements: int = _CHUNK_ELEMENTS) -> int:
    """Positions per chunk so that one chunk has at most `elements` logits.

    Args:
        batch: rows, all of which are in every chunk (so that a batch sharded over
            devices stays sharded).
        vocab: number of words.
        elements: limit for `batch * positions * vocab`.

    Returns:
        At least 1.
    """
    return max(1, elements // max(1, batch * vocab))


def token_log_probs(
    hidden: Float[Array, "B T D"],
    weight: Float[Array, "V D"],
    targets: Int[Array, "B T"],
    *,
    temperature: float | Float[Array, ""] = 1.0,
    logit_mask: LogitMask = None,
    chunk: int | None = None,
) -> HeadOutput:
    r"""Log-probability of each target and entropy of its distribution.

    .. math:: \ell_t = z_{t, y_t} - \mathrm{lse}(z_t), \quad
              H_t = \mathrm{lse}(z_t) - \sum_v p_{t,v} z_{t,v}, \quad
              z_t = W h_t / \tau

    Differentiable in `hidden` and `weight`, through both outputs; the temperature and
    the mask are constants. A position whose mask allows nothing (padding) is taken as
    unmasked. A target that its mask forbids has a finite, very low log-probability and
    hands no gradient to its own logit: such data are an error for the caller to find.

    Args:
        hidden: `[B, T, D]`, the trunk's output *before* each target.
        weight: `[V, D]` head weight; used in the dtype of `hidden`.
        targets: `[B, T]` int32, each in `[0, V)`.
        temperature: tau > 0 of the sampler.
        logit_mask: None, `[V]` or `[B, T, V]` bool (True = may be sampled), or a
            `MaskTable`.
        chunk: positions per step; default: about 512 MiB of logits.

    Returns:
        `HeadOutput`, float32.

    Raises:
        AssertionError: hidden, weight and targets do not fit.
        ValueError: the mask does not, or the chunk is below 1.
    """
    chex.assert_rank([hidden, weight, targets], [3, 2, 2])
    batch, length, width = hidden.shape
    vocab = weight.shape[0]
    chex.assert_axis_dimension(weight, 1, width)
    chex.assert_shape(targets, (batch, length))
    _check_mask(logit_mask, batch, length, vocab)
    if chunk is None:
        chunk = chunk_length(batch, vocab)
    chunk = min(chunk, length)
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    temperature = jnp.asarray(temperature, jnp.float32)
    log_prob, entropy = _head(chunk, hidden, weight, targets, temperature, logit_mask)
    return HeadOutput(log_prob, entropy)


def _check_mask(mask: LogitMask, batch: int, length: int, vocab: int) -> None:
    if mask is None:
        return
    if isinstance(mask, MaskTable):
        fits = mask.table.shape[1:] == (vocab,) and mask.which.shape == (batch, length)
        shapes = f"table {mask.table.shape}, which {mask.which.shape}"
    else:
        fits = mask.shape in ((vocab,), (batch, length, vocab))
        shapes = f"{mask.shape}"
    if not fits:
        raise ValueError(
            f"logit mask {shapes} does not fit batch {batch}, length {length} and "
            f"vocabulary {vocab}."
        )


def _chunks(
    array: Shaped[Array, "B T *rest"], chunk: int
) -> Shaped[Array, "N B chunk *rest"]:
    """`[B, T, ...]` -> `[T / chunk, B, chunk, ...]`, zero-padded along T."""
    batch, length = array.shape[:2]
    pad = -length % chunk
    array = jnp.pad(array, ((0, 0), (0, pad), *((0, 0),) * (array.ndim - 2)))
    split = array.reshape(batch, (length + pad) // chunk, chunk, *array.shape[2:])
    return jnp.moveaxis(split, 1, 0)


def _unchunk(
    array: Shaped[Array, "N B chunk *rest"], length: int
) -> Shaped[Array, "B T *rest"]:
    """Undo `_chunks`."""
    joined = jnp.moveaxis(array, 0, 1)
    joined = joined.reshape(joined.shape[0], -1, *joined.shape[3:])
    return joined[:, :length]


def _mask_chunks(mask: LogitMask, chunk: int) -> Array | None:
    """The part of the mask that is walked along with the sequence."""
    if isinstance(mask, MaskTable):
        return _chunks(mask.which, chunk)
    if mask is None or mask.ndim == 1:
        return None
    return _chunks(mask, chunk)


def _chunk_logits(
    hidden: Float[Array, "B chunk D"],
    weight: Float[Array, "V D"],
    temperature: Float[Array, ""],
    mask: LogitMask,
    mask_chunk: Array | None,
) -> Float[Array, "B chunk V"]:
    """Masked, tempered float32 logits of one chunk."""
    logits = jnp.einsum(
        "btd,vd->btv", hidden, weight, preferred_element_type=jnp.float32
    )
    logits = logits / temperature
    if mask is None:
        return logits
    if isinstance(mask, MaskTable):
        allowed = mask.table[mask_chunk]
    elif mask_chunk is None:
        allowed = jnp.broadcast_to(mask[None, None], logits.shape)
    else:
        allowed = mask_chunk
    allowed = allowed | ~jnp.any(allowed, axis=-1, keepdims=True)
    # A finite floor: exp() of it is exactly 0, and 0 * it is 0 rather than NaN.
    return jnp.where(allowed, logits, jnp.float32(-1e30))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _head(
    chunk: int,
    hidden: Float[Array, "B T D"],
    weight: Float[Array, "V D"],
    targets: Int[Array, "B T"],
    temperature: Float[Array, ""],
    mask: LogitMask,
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    return _head_fwd(chunk, hidden, weight, targets, temperature, mask)[0]


def _head_fwd(
    chunk: int,
    hidden: Float[Array, "B T D"],
    weight: Float[Array, "V D"],
    targets: Int[Array, "B T"],
    temperature: Float[Array, ""],
    mask: LogitMask,
) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
    length = hidden.shape[1]
    weight_c = weight.astype(hidden.dtype)

    def step(_: None, slices: Any) -> tuple[None, tuple[Array, ...]]:
        h, y, m = slices
        logits = _chunk_logits(h, weight_c, temperature, mask, m)
        # Shifted by the top logit first: log p keeps its digits at any logit scale.
        top = jnp.max(logits, axis=-1)
        shifted = logits - top[..., None]
        log_sum = jnp.log(jnp.sum(jnp.exp(shifted), axis=-1))
        log_p = shifted - log_sum[..., None]
        chosen = jnp.take_along_axis(log_p, y[..., None], axis=-1)[..., 0]
        entropy = -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)
        return None, (chosen, entropy, top, log_sum)

    slices = (
        _chunks(hidden, chunk),
        _chunks(targets, chunk),
        _mask_chunks(mask, chunk),
    )
    _, (log_prob, entropy, top, log_sum) = lax.scan(step, None, slices)
    outputs = _unchunk(log_prob, length), _unchunk(entropy, length)
    saved = (top, log_sum, entropy)
    return outputs, (hidden, weight, targets, temperature, mask, saved)


def _head_bwd(
    chunk: int, residuals: tuple[Any, ...], cotangents: tuple[Array, Array]
) -> tuple[Array | None, ...]:
    hidden, weight, targets, temperature, mask, saved = residuals
    weight_c = weight.astype(hidden.dtype)
    g_log_prob, g_entropy = (_chunks(g, chunk) for g in cotangents)

    def step(d_weight: Array, slices: Any) -> tuple[Array, Array]:
        h, y, m, (top, log_sum, entropy), g_l, g_h = slices
        logits = _chunk_logits(h, weight_c, temperature, mask, m)
        log_p = logits - top[..., None] - log_sum[..., None]
        p = jnp.exp(log_p)
        # d log p_y / d z = 1[v = y] - p;  d H / d z = -p (log p + H)
        d_logits = -p * (g_l[..., None] + g_h[..., None] * (log_p + entropy[..., None]))
        is_target = lax.broadcasted_iota(y.dtype, p.shape, 2) == y[..., None]
        d_logits = d_logits + jnp.where(
            is_target & (logits > -1e29), g_l[..., None], 0.0
        )
        d_logits = (d_logits / temperature).astype(h.dtype)
        d_hidden = jnp.einsum(
            "btv,vd->btd", d_logits, weight_c, preferred_element_type=jnp.float32
        )
        d_weight = d_weight + jnp.einsum(
            "btv,btd->vd", d_logits, h, preferred_element_type=jnp.float32
        )
        return d_weight, d_hidden.astype(h.dtype)

    slices = (
        _chunks(hidden, chunk),
        _chunks(targets, chunk),
        _mask_chunks(mask, chunk),
        saved,
        g_log_prob,
        g_entropy,
    )
    d_weight, d_hidden = lax.scan(step, jnp.zeros(weight.shape, jnp.float32), slices)
    d_hidden = _unchunk(d_hidden, hidden.shape[1])
    return d_hidden, d_weight.astype(weight.dtype), None, None, None


_head.defvjp(_head_fwd, _head_bwd)
