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

import jax
import jax.numpy as jnp

# Work within a chunk grows with C^2, work between chunks with the width of a head.
CHUNK, NARROW_CHUNK, NARROW = 64, 32, 96
_HIGHEST = jax.lax.Precision.HIGHEST


def l2_normalise(x: jax.Array, *, eps: float = 1e-6) -> jax.Array:
    """x / sqrt(sum(x^2) + eps) over the last axis."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + eps)


def delta_step(
    state: jax.Array,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    g: jax.Array,
    beta: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """One token of the recurrence; the state is read once and written once.

    Args:
        state: S [B, K, R, dk, dv] float32: R value heads share each of K key heads.
        q: scaled queries [B, K, dk].
        k: normalised keys [B, K, dk].
        v: values [B, K, R, dv].
        g: log decays [B, K, R] (<= 0).
        beta: write strengths [B, K, R].

    Returns:
        The new state and the output [B, K, R, dv].
    """
    decay = jnp.exp(g)[..., None]
    reads = jnp.einsum("bkxd,bkrde->bkrxe", jnp.stack([k, q], axis=2), state)
    delta = beta[..., None] * (v - decay * reads[..., 0, :])
    state = decay[..., None] * state + k[:, :, None, :, None] * delta[..., None, :]
    overlap = jnp.sum(q * k, axis=-1)[:, :, None, None]
    return state, decay * reads[..., 1, :] + overlap * delta


def delta_chunked(
    state: jax.Array,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    g: jax.Array,
    beta: jax.Array,
    *,
    chunk: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The recurrence over T tokens, ``chunk`` tokens at a time.

    Args:
        state: S before the first token [B, K, R, dk, dv] float32.
        q: scaled queries [B, T, K, dk].
        k: normalised keys [B, T, K, dk]; zero at pads.
        v: values [B, T, K, R, dv].
        g: log decays [B, T, K, R] (<= 0); zero at pads.
        beta: write strengths [B, T, K, R]; zero at pads.
        chunk: tokens per chunk, a power of two; by default 64, 32 for narrow heads.

    Returns:
        The state after the last token and the outputs [B, T, K, R, dv].
    """
    length = q.shape[1]
    if chunk is None:
        chunk = NARROW_CHUNK if max(q.shape[-1], v.shape[-1]) <= NARROW else CHUNK
    while chunk // 2 >= length:
        chunk //= 2
    extra = -length % chunk
    q, k, v = (_to_chunks(x, extra, chunk, axis=-2) for x in (q, k, v))
    g, beta = (_to_chunks(x, extra, chunk, axis=-1) for x in (g, beta))
    # Now q, k [N, B, K, C, dk]; v [N, B, K, R, C, dv]; g, beta [N, B, K, R, C].
    index = jnp.arange(chunk)
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

    def step(s, xs):
        u, w, a, qc, kc, end = xs
        u = u - jnp.matmul(w, s)
        out = jnp.matmul(qc, s) + jnp.matmul(a, u)
        return end * s + jnp.matmul(kc.swapaxes(-1, -2), u), out

    xs = (new_values, corrections, within, queries, writes, total)
    state, out = jax.lax.scan(step, state, xs)
    # [N, B, K, R, C, dv] -> [B, N C, K, R, dv]
    out = out.transpose(1, 0, 4, 2, 3, 5)
    out = out.reshape(out.shape[0], -1, *out.shape[3:])
    return state, out[:, :length]


@jax.custom_vjp
def invert_unit_lower(strict: jax.Array) -> jax.Array:
    """(I + A)^{-1} for strictly lower triangular A [..., C, C], C a power of two.

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


def _invert_forward(strict: jax.Array) -> tuple[jax.Array, jax.Array]:
    inverse = invert_unit_lower(strict)
    return inverse, inverse


def _invert_backward(inverse: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    # dY = -Y dA Y: two products instead of the recursion's ten, and as exact.
    flipped = inverse.swapaxes(-1, -2)
    pulled = jnp.matmul(
        jnp.matmul(flipped, cotangent, precision=_HIGHEST), flipped, precision=_HIGHEST
    )
    return (jnp.tril(-pulled, -1),)


invert_unit_lower.defvjp(_invert_forward, _invert_backward)


def _segment_sums(g: jax.Array, lower: jax.Array) -> jax.Array:
    """sum_{l=j+1..i} g_l for i >= j, at [..., i, j]; zero above the diagonal."""
    spread = jnp.where(_front(lower, g.ndim + 1), g[..., :, None], 0.0)
    return jnp.cumsum(spread, axis=-2)


def _to_chunks(x: jax.Array, extra: int, chunk: int, *, axis: int) -> jax.Array:
    """Split time [B, T, ...] into chunks in front, the place in a chunk at ``axis``."""
    pad = [(0, 0)] * x.ndim
    pad[1] = (0, extra)
    x = jnp.pad(x, pad)
    x = x.reshape(x.shape[0], -1, chunk, *x.shape[2:])
    return jnp.moveaxis(jnp.moveaxis(x, 1, 0), 2, axis)


def _front(mask: jax.Array, ndim: int) -> jax.Array:
    return mask.reshape((1,) * (ndim - 2) + mask.shape)
