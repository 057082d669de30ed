"""Log-probabilities, entropies and KL of masked policies against distrax."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax import losses
from rpg_jax.llm.distribution import adjusted_log_probs
from rpg_jax.llm.head import token_log_probs

ROWS, WORDS = 6, 23


@pytest.fixture(scope="module")
def distrax():
    with warnings.catch_warnings():  # its TensorFlow Probability is not quiet
        warnings.simplefilter("ignore")
        return pytest.importorskip("distrax")


@pytest.fixture(scope="module")
def masked():
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(ROWS, WORDS)), jnp.float32)
    allowed = jnp.asarray(rng.random((ROWS, WORDS)) < 0.6).at[:, 0].set(True)
    return logits, allowed


def test_the_samplers_distribution(distrax, masked):
    logits, allowed = masked
    ours = adjusted_log_probs(logits, temperature=jnp.float32(0.7), allowed=allowed)
    theirs = distrax.Categorical(jnp.where(allowed, logits / 0.7, -jnp.inf))
    np.testing.assert_allclose(jnp.exp(ours), theirs.probs, atol=1e-6)
    words = jnp.argmax(ours, axis=-1)
    np.testing.assert_allclose(ours.max(-1), theirs.log_prob(words), atol=1e-6)


def test_the_trainers_head(distrax, masked):
    """A head that is the identity has the hidden states as its logits."""
    logits, allowed = masked
    theirs = distrax.Categorical(jnp.where(allowed, logits / 0.7, -1e30))
    words = theirs.sample(seed=jax.random.key(0))
    ours = token_log_probs(
        logits[None],
        jnp.eye(WORDS),
        words[None],
        temperature=0.7,
        logit_mask=allowed[None],
    )
    np.testing.assert_allclose(ours.log_prob[0], theirs.log_prob(words), atol=1e-5)
    np.testing.assert_allclose(ours.entropy[0], theirs.entropy(), atol=1e-5)


def test_the_kl_estimates_have_its_kl_as_their_mean(distrax, masked):
    logits, _ = masked
    first, second = distrax.Categorical(logits[0]), distrax.Categorical(logits[1])
    p, q = jax.nn.log_softmax(logits[0]), jax.nn.log_softmax(logits[1])
    for kind in ("k1", "k3"):
        each = losses.kl_estimate(p, q, jnp.ones(WORDS, bool), kind=kind)
        mean = jnp.sum(first.probs * each)  # over all words, not a sample of them
        np.testing.assert_allclose(mean, first.kl_divergence(second), rtol=1e-5)
