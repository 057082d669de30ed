"""The adjusted distribution and the draw, against plain NumPy and frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rpg_jax.llm.distribution import adjusted_log_probs, draw


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def reference(logits, temperature, allowed, present, penalty, top_k, top_p):
    """One row at a time, by sorting, in float64."""
    out = []
    for row, ok, seen in zip(logits.astype(np.float64), allowed, present, strict=True):
        row = np.where(ok, (row - penalty * seen) / temperature, -np.inf)
        order = np.argsort(-row)
        if top_k is not None:
            row[order[top_k:]] = -np.inf
        p = np.exp(log_softmax(row))
        if top_p is not None:
            before = np.cumsum(p[order]) - p[order]
            drop = before >= top_p
            drop[0] = False
            row[order[drop]] = -np.inf
        with np.errstate(divide="ignore"):
            out.append(log_softmax(row))
    return np.stack(out)


@pytest.mark.parametrize("top_k", [None, 1, 7, 1000])
@pytest.mark.parametrize("top_p", [None, 1e-6, 0.6, 1.0])
def test_against_sorting_in_float64(top_k, top_p):
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((5, 40)).astype(np.float32)
    allowed = rng.random((5, 40)) < 0.7
    present = rng.random((5, 40)) < 0.3
    got = adjusted_log_probs(
        jnp.asarray(logits),
        temperature=jnp.float32(0.8),
        allowed=jnp.asarray(allowed),
        present=jnp.asarray(present),
        presence_penalty=jnp.float32(1.5),
        top_k=top_k,
        top_p=None if top_p is None else jnp.float32(top_p),
    )
    want = reference(logits, 0.8, allowed, present, 1.5, top_k, top_p)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize("vocab", [1, 2, 5, 61, 300])
def test_draw_has_the_right_frequencies(key, vocab):
    count = 40_000
    logits = np.random.default_rng(1).standard_normal(vocab).astype(np.float32) * 2
    logits[1::3] = -np.inf
    log_probs = jax.nn.log_softmax(jnp.asarray(logits))
    tokens = draw(
        jax.random.split(key, count), jnp.broadcast_to(log_probs, (count, vocab))
    )
    seen = np.bincount(np.asarray(tokens), minlength=vocab)
    assert len(seen) == vocab
    p = np.exp(np.asarray(log_probs, np.float64))
    assert seen[p == 0].sum() == 0
    big = p * count > 20
    if big.sum() > 1:
        expected = p[big] / p[big].sum() * seen[big].sum()
        assert stats.chisquare(seen[big], expected).pvalue > 1e-6


def test_draw_reaches_rare_tokens_of_a_large_vocabulary(key):
    # A uniform policy over 2^17 tokens: every draw distinct from float rounding bias.
    vocab, count = 1 << 17, 2_000
    log_probs = jnp.full((1, vocab), -jnp.log(jnp.float32(vocab)))
    step = jax.jit(
        lambda keys: jax.lax.map(lambda k: draw(k[None], log_probs)[0], keys)
    )
    tokens = np.asarray(step(jax.random.split(key, count)))
    assert stats.kstest(tokens / vocab, "uniform").pvalue > 1e-6
    low_bits = np.bincount(tokens % 8, minlength=8)
    assert stats.chisquare(low_bits).pvalue > 1e-6


def test_draw_never_picks_a_token_of_no_mass(key):
    log_probs = jnp.full((20_000, 64), -jnp.inf).at[:, 37].set(0.0)
    tokens = draw(jax.random.split(key, 20_000), log_probs)
    assert bool(jnp.all(tokens == 37))
