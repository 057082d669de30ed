"""The distribution a policy samples from, and one exact draw per row.

Order of the adjustments, as in the common servers: mask, presence penalty, temperature,
top-k, top-p. What comes out is normalised, so its log-probabilities are those of the
draw and not of the unadjusted model.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

_NEVER = -jnp.inf


def adjusted_log_probs(
    logits: Float[Array, "B V"],
    *,
    temperature: Float[Array, ""],
    allowed: Bool[Array, "B V"] | None = None,
    present: Bool[Array, "B V"] | None = None,
    presence_penalty: Float[Array, ""] | None = None,
    top_k: int | None = None,
    top_p: Float[Array, ""] | None = None,
) -> Float[Array, "B V"]:
    """log p of softmax(logits / temperature) after mask, penalty, top-k, top-p.

    Args:
        logits: float32.
        temperature: scalar > 0.
        allowed: tokens that may be drawn; at least one per row.
        present: tokens that the completion already has.
        presence_penalty: subtracted from the logits of ``present``, nats.
        top_k: keep the k most probable (Fan et al. 2018); ties at the edge stay.
        top_p: keep the smallest set of mass >= top_p (Holtzman et al. 2020).

    Returns:
        Normalised log-probabilities; -inf for tokens that cannot be drawn.

    Raises:
        AssertionError: a mask has another shape than the logits.
    """
    chex.assert_rank(logits, 2)
    chex.assert_equal_shape([logits, *(m for m in (allowed, present) if m is not None)])
    if presence_penalty is not None and present is not None:
        logits = jnp.where(present, logits - presence_penalty, logits)
    logits = logits / temperature
    if allowed is not None:
        logits = jnp.where(allowed, logits, _NEVER)
    if top_k is not None and top_k < logits.shape[-1]:
        best = jax.lax.top_k(logits, top_k)[0]
        logits = jnp.where(logits < best[:, -1:], _NEVER, logits)
    else:
        best = None
    if top_p is not None:
        if best is None:
            best = -jnp.sort(-logits, axis=-1)
        norm = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        mass = jnp.exp(best - norm)
        before = jnp.cumsum(mass, axis=-1) - mass
        # The most probable token always stays, whatever the rounding.
        kept = (before < top_p) & (best > _NEVER)
        kept = kept.at[:, 0].set(True)
        edge = jnp.min(jnp.where(kept, best, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits < edge, _NEVER, logits)
    return jax.nn.log_softmax(logits, axis=-1)


def draw(keys: PRNGKeyArray, log_probs: Float[Array, "B V"]) -> Int[Array, " B"]:
    """One token per row from normalised log-probabilities, and one key per row.

    Inverse-CDF in two stages, a block of the vocabulary and a token within it: two
    random numbers per row instead of one per token, and sums short enough to be exact
    in float32.
    """
    rows, vocab = log_probs.shape
    block = 1 << max(0, (vocab.bit_length() + 1) // 2)
    probs = jnp.exp(log_probs)
    probs = jnp.pad(probs, ((0, 0), (0, -vocab % block))).reshape(rows, -1, block)
    uniform = jax.vmap(lambda k: jax.random.uniform(k, (2,)))(keys)
    which = _invert_cdf(uniform[:, 0], jnp.sum(probs, axis=-1))
    inside = jnp.take_along_axis(probs, which[:, None, None], axis=1)[:, 0]
    return which * block + _invert_cdf(uniform[:, 1], inside)


def _invert_cdf(
    uniform: Float[Array, " B"], mass: Float[Array, "B N"]
) -> Int[Array, " B"]:
    """Index i with cdf_{i-1} <= u total < cdf_i; never one of zero mass."""
    cdf = jnp.cumsum(mass, axis=-1)
    total = cdf[:, -1]
    point = jnp.minimum(uniform * total, jnp.nextafter(total, jnp.zeros_like(total)))
    index = jnp.sum(cdf <= point[:, None], axis=-1, dtype=jnp.int32)
    return jnp.minimum(index, mass.shape[-1] - 1)
