"""Building blocks shared by the decoder families: norm, rotary, attention, MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rpg_jax.arrays import float_info

Weight = Array | Mapping[str, Array]

# Queries per block of attention: bounds the [T, S] scores held at once.
QUERY_BLOCK = 1024


def linear(x: Float[Array, "*batch in"], w: Weight) -> Float[Array, "*batch out"]:
    """y = x W, or y = x W + (x A) B for a weight with a low-rank update.

    Args:
        x: inputs.
        w: kernel [in, out], or ``{"kernel", "lora_a" [in, r], "lora_b" [r, out]}``
            with any scale already inside ``lora_b`` (Hu et al. 2021), or
            ``{"transposed" [out, in]}`` for few rows on a CPU.
    """
    if isinstance(w, Mapping):
        if "transposed" in w:
            return few_rows_product(x, w["transposed"])
        kernel, a, b = (w[k].astype(x.dtype) for k in ("kernel", "lora_a", "lora_b"))
        return x @ kernel + (x @ a) @ b
    return x @ w.astype(x.dtype)


def few_rows_product(
    x: Float[Array, "*batch in"], wt: Float[Array, "out in"]
) -> Float[Array, "*batch out"]:
    """y = x W from W^T [out, in] as the left operand: fast for few rows on a CPU.

    XLA's CPU products of 4 to 32 rows run 1.2 to 2 times faster with the large matrix
    on the left. It would put it back on the right, hence the barrier.
    """
    rows = x.reshape(-1, x.shape[-1])
    out = jax.lax.dot_general(
        wt.astype(x.dtype),
        rows,
        (((1,), (1,)), ((), ())),
        preferred_element_type=x.dtype,
    )
    fenced: Array = jax.lax.optimization_barrier(out)
    return fenced.T.reshape(*x.shape[:-1], wt.shape[0])


def rms_norm(
    x: Float[Array, "*batch d"],
    weight: Float[Array, " d"],
    *,
    eps: float,
    offset: float = 0.0,
) -> Float[Array, "*batch d"]:
    """x / sqrt(mean(x^2) + eps) * (offset + weight), computed in float32."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
    scale = (offset + weight.astype(jnp.float32)).reshape((1,) * (x.ndim - 1) + (-1,))
    return (y * scale).astype(x.dtype)


def swiglu(
    x: Float[Array, "*batch d"], p: Mapping[str, Any]
) -> Float[Array, "*batch d"]:
    """W_down (silu(W_gate x) * W_up x)."""
    gate = jax.nn.silu(linear(x, p["gate_proj"]))
    return linear(gate * linear(x, p["up_proj"]), p["down_proj"])


def rotary_tables(
    positions: Int[Array, "B T"], dim: int, theta: float
) -> tuple[Float[Array, "B T half"], Float[Array, "B T half"]]:
    """Cosines and sines of position * theta^(-2i/dim) (Su et al. 2021).

    Args:
        positions: index of each token among the real tokens of its row.
        dim: number of channels that rotate.
        theta: base of the wavelengths.
    """
    exponent = jnp.arange(0, dim, 2, dtype=jnp.float32) / dim
    frequency = jnp.float32(theta) ** -exponent
    angle = positions.astype(jnp.float32)[..., None] * frequency[None, None, :]
    return jnp.cos(angle), jnp.sin(angle)


def apply_rotary(
    x: Float[Array, "B T H d"],
    cos: Float[Array, "B T half"],
    sin: Float[Array, "B T half"],
) -> Float[Array, "B T H d"]:
    """Rotate the leading channels of x; the others pass through."""
    half = cos.shape[-1]
    cos, sin = cos[:, :, None, :], sin[:, :, None, :]
    first = x[..., :half].astype(jnp.float32)
    second = x[..., half : 2 * half].astype(jnp.float32)
    rotated = jnp.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )
    return jnp.concatenate([rotated.astype(x.dtype), x[..., 2 * half :]], axis=-1)


def attention(
    q: Float[Array, "B T H d"],
    k: Float[Array, "B K S d"],
    v: Float[Array, "B K S d"],
    allowed: Bool[Array, "B T S"],
) -> Float[Array, "B T H d"]:
    """softmax(q k^T / sqrt(d)) v over the allowed keys, grouped heads, fp32 softmax.

    Args:
        q: queries; H must be a multiple of K.
        k: keys.
        v: values.
        allowed: which keys each query may read. A query that may read none gets a
            finite, meaningless average.
    """
    batch, length, heads, dim = q.shape
    groups = k.shape[1]
    q = q.reshape(batch, length, groups, heads // groups, dim).transpose(0, 2, 3, 1, 4)
    q = q * jnp.asarray(dim**-0.5, q.dtype)
    if length > QUERY_BLOCK:
        extra = -length % QUERY_BLOCK
        q_blocks = jnp.pad(q, ((0, 0),) * 3 + ((0, extra), (0, 0)))
        q_blocks = q_blocks.reshape(*q.shape[:3], -1, QUERY_BLOCK, dim)
        allowed_blocks = jnp.pad(allowed, ((0, 0), (0, extra), (0, 0)))
        allowed_blocks = allowed_blocks.reshape(
            batch, -1, QUERY_BLOCK, allowed.shape[-1]
        )
        out = jax.lax.map(
            jax.checkpoint(lambda args: _attend(args[0], k, v, args[1])),
            (jnp.moveaxis(q_blocks, 3, 0), jnp.moveaxis(allowed_blocks, 1, 0)),
        )
        out = jnp.moveaxis(out, 0, 3)
        out = out.reshape(*q.shape[:3], -1, dim)[..., :length, :]
    else:
        out = _attend(q, k, v, allowed)
    return out.transpose(0, 3, 1, 2, 4).reshape(batch, length, heads, dim)


def _attend(
    q: Float[Array, "B K G T d"],
    k: Float[Array, "B K S d"],
    v: Float[Array, "B K S d"],
    allowed: Bool[Array, "B T S"],
) -> Float[Array, "B K G T d"]:
    """Attention, the heads of a group side by side."""
    batch, groups, shared, length, dim = q.shape
    # The heads of a group are folded into rows: one matrix product per (row, group).
    flat = q.reshape(batch, groups, shared * length, dim)
    scores = jnp.einsum("bkqd,bksd->bkqs", flat, k, preferred_element_type=jnp.float32)
    scores = scores.reshape(batch, groups, shared, length, -1)
    scores = jnp.where(allowed[:, None, None], scores, float_info(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    weights = weights.reshape(batch, groups, shared * length, -1)
    return jnp.einsum("bkqs,bksd->bkqd", weights, v).reshape(q.shape)
