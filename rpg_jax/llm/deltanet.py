"""The gated delta rule: one-step recurrence and its chunked, matmul-only form.

S_t = e^{g_t} S_{t-1} + k_t (beta_t (v_t - e^{g_t} S_{t-1}^T k_t))^T,  o_t = S_t^T q_t
(Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks", arXiv:2412.06464).

Two choices keep float32 exact to rounding. Decays between positions are sums over the
segment between them, never differences of long cumulative sums. The unit triangular
system of a chunk is inverted by block recursion: multiplying out powers of the matrix
costs the same, but its terms grow like binomials when keys repeat (a policy that says
the same token again and again), and cancel to noise.
"""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# Work within a chunk grows with C^2, work between chunks with the width of a head.
CHUNK, NARROW_CHUNK, NARROW = 64, 32, 96
_HIGHEST = jax.lax.Precision.HIGHEST


def l2_normalise(
    x: Float[Array, "*batch d"], *, eps: float = 1e-6
) -> Float[Array, "*batch d"]:
    """x / sqrt(sum(x^2) + eps) over the last axis."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + eps)


def delta_step(
    state: Float[Array, "B K R dk dv"],
    q: Float[Array, "B K dk"],
    k: Float[Array, "B K dk"],
    v: Float[Array, "B K R dv"],
    g: Float[Array, "B K R"],
    beta: Float[Array, "B K R"],
) -> tuple[Float[Array, "B K R dk dv"], Float[Array, "B K R dv"]]:
    """One token of the recurrence; the state is read once and written once.

    Args:
        state: S, float32: R value heads share each of K key heads.
        q: scaled queries.
        k: normalised keys.
        v: values.
        g: log decays (<= 0).
        beta: write strengths.

    Returns:
        The new state and the output.

    Raises:
        AssertionError: shapes do not fit.
    """
    chex.assert_rank([state, q, k, v, g, beta], [5, 3, 3, 4, 3, 3])
    chex.assert_equal_shape([q, k])
    chex.assert_equal_shape([g, beta])
    decay = jnp.exp(g)[..., None]
    reads = jnp.einsum("bkxd,bkrde->bkrxe", jnp.stack([k, q], axis=2), state)
    delta = beta[..., None] * (v - decay * reads[..., 0, :])
    state = decay[..., None] * state + k[:, :, None, :, None] * delta[..., None, :]
    overlap = jnp.sum(q * k, axis=-1)[:, :, None, None]
    return state, decay * reads[..., 1, :] + overlap * delta


def delta_chunked(
    state: Float[Array, "B K R dk dv"],
    q: Float[Array, "B T K dk"],
    k: Float[Array, "B T K dk"],
    v: Float[Array, "B T K R dv"],
    g: Float[Array, "B T K R"],
    beta: Float[Array, "B T K R"],
    *,
    chunk: int | None = None,
) -> tuple[Float[Array, "B K R dk dv"], Float[Array, "B T K R dv"]]:
    """The recurrence over T tokens, ``chunk`` tokens at a time.

    Args:
        state: S before the first token, float32.
        q: scaled queries.
        k: normalised keys; zero at pads.
        v: values.
        g: log decays (<= 0); zero at pads.
        beta: write strengths; zero at pads.
        chunk: tokens per chunk, a power of two; by default 64, 32 for narrow heads.

    Returns:
        The state after the last token and the outputs.

    Raises:
        AssertionError: shapes do not fit.
    """
    chex.assert_rank([state, q, k, v, g, beta], [5, 4, 4, 5, 4, 4])
    chex.assert_equal_shape([q, k])
    chex.assert_equal_shape([g, beta])
    length = q.shape[1]
    if chunk is None:
        chunk = NARROW_CHUNK if max(q.shape[-1], v.shape[-1]) <= NARROW else CHUNK
    while chunk // 2 >= length:
        chunk //= 2
    extra = -length % chunk
    q, k, v = (_to_chunks(x, extra, chunk, axis=-2) for x in (q, k, v))
    g, beta = (_to_chunks(x, extra, chunk, axis=-1) for x in (g, beta))
    # Now q, k [N, B, K, C, dk]; v [N, B, K, R, C, dv]; g, beta [N, B, K, R, C].

    def step(s: Array, xs: Any) -> tuple[Array, Array]:
        u, w, a, qc, kc, end = xs
        u = u - jnp.matmul(w, s)
        out = jnp.matmul(qc, s) + jnp.matmul(a, u)
        return end * s + jnp.matmul(kc.swapaxes(-1, -2), u), out

    state, out = jax.lax.scan(step, state, _chunk_products(q, k, v, g, beta))
    # [N, B, K, R, C, dv] -> [B, N C, K, R, dv]
    out = out.transpose(1, 0, 4, 2, 3, 5)
    out = out.reshape(out.shape[0], -1, *out.shape[3:])
    return state, out[:, :length]


def _chunk_products(
    q: Float[Array, "N B K C dk"],
    k: Float[Array, "N B K C dk"],
    v: Float[Array, "N B K R C dv"],
    g: Float[Array, "N B K R C"],
    beta: Float[Array, "N B K R C"],
) -> tuple[Array, ...]:
    """What the scan over chunks needs of each: all that no other chunk enters."""
    index = jnp.arange(q.shape[-2])
    lower = index[:, None] > index[None, :]
    causal = index[:, None] >= index[None, :]

    decay = jnp.where(_front(causal, 6), jnp.exp(_segment_sums(g, lower)), 0.0)
    from_start = jnp.exp(jnp.cumsum(g, axis=-1))[..., None]
    to_end = decay[..., -1, :, None]
    overlap = jnp.einsum("nbkid,nbkjd->nbkij", k, k, precision=_HIGHEST)[:, :, :, None]
    coupling = jnp.where(_front(lower, 6), beta[..., None] * overlap * decay, 0.0)
    inverse = invert_unit_lower(coupling)
    keys = k[:, :, :, None]
    new_values = jnp.matmul(inverse, beta[..., None] * v, precision=_HIGHEST)
    corrections = jnp.matmul(
        inverse, (beta[..., None] * from_start) * keys, precision=_HIGHEST
    )
    within = jnp.einsum("nbkid,nbkjd->nbkij", q, k)[:, :, :, None] * decay
    queries = q[:, :, :, None] * from_start
    writes = keys * to_end
    total = from_start[..., -1:, :]
    return new_values, corrections, within, queries, writes, total


@jax.custom_vjp
def invert_unit_lower(strict: Float[Array, "*batch C C"]) -> Float[Array, "*batch C C"]:
    """(I + A)^{-1} for strictly lower triangular A, C a power of two.

    Block recursion [[X, 0], [B, Y]]^{-1} = [[X', 0], [-Y' B X', Y']]: log2(C) rounds
    of two products, as backward stable as substitution and without its C steps.
    """
    size = strict.shape[-1]
    index = jnp.arange(size)
    row, column = index[:, None], index[None, :]
    inverse = jnp.broadcast_to(jnp.eye(size, dtype=strict.dtype), strict.shape)
    block = 1
    while block < size:
        # The lower left quarter of every diagonal block of twice the size.
        pairs = (row // (2 * block) == column // (2 * block)) & (
            row // block > column // block
        )
        quarter = jnp.where(_front(pairs, strict.ndim), strict, 0.0)
        if block == 1:
            inverse = inverse - quarter
        else:
            inverse = inverse - jnp.matmul(
                jnp.matmul(inverse, quarter, precision=_HIGHEST),
                inverse,
                precision=_HIGHEST,
            )
        block *= 2
    return inverse


def _invert_forward(strict: Array) -> tuple[Array, Array]:
    inverse = invert_unit_lower(strict)
    return inverse, inverse


def _invert_backward(inverse: Array, cotangent: Array) -> tuple[Array]:
    # dY = -Y dA Y: two products instead of the recursion's ten, and as exact.
    flipped = inverse.swapaxes(-1, -2)
    pulled = jnp.matmul(
        jnp.matmul(flipped, cotangent, precision=_HIGHEST), flipped, precision=_HIGHEST
    )
    return (jnp.tril(-pulled, -1),)


invert_unit_lower.defvjp(_invert_forward, _invert_backward)


def _segment_sums(
    g: Float[Array, "*batch C"], lower: Bool[Array, "C C"]
) -> Float[Array, "*batch C C"]:
    """sum_{l=j+1..i} g_l for i >= j, at [..., i, j]; zero above the diagonal."""
    spread = jnp.where(_front(lower, g.ndim + 1), g[..., :, None], 0.0)
    return jnp.cumsum(spread, axis=-2)


def _to_chunks(x: Array, extra: int, chunk: int, *, axis: int) -> Array:
    """Split time [B, T, ...] into chunks in front, the place in a chunk at ``axis``."""
    pad = [(0, 0)] * x.ndim
    pad[1] = (0, extra)
    x = jnp.pad(x, pad)
    x = x.reshape(x.shape[0], -1, chunk, *x.shape[2:])
    return jnp.moveaxis(jnp.moveaxis(x, 1, 0), 2, axis)


def _front(mask: Array, ndim: int) -> Array:
    return mask.reshape((1,) * (ndim - 2) + mask.shape)
