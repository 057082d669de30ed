"""The chunked head against the head that makes all logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax.llm.head import MaskTable, chunk_length, token_log_probs

B, T, D, V = 3, 7, 8, 37


@pytest.fixture(scope="module")
def data():
    k = jax.random.split(jax.random.key(3), 5)
    hidden = 2.0 * jax.random.normal(k[0], (B, T, D))
    weight = jax.random.normal(k[1], (V, D))
    targets = jax.random.randint(k[2], (B, T), 0, V)
    table = jax.random.bernoulli(k[3], 0.4, (5, V))
    index = jax.random.randint(k[4], (B, T), 0, 5)
    table = table.at[0].set(True)
    allowed = jax.vmap(jax.vmap(lambda i, y: table[i].at[y].set(True)))(index, targets)
    return hidden, weight, targets, table, index, allowed


def full_head(hidden, weight, targets, temperature, allowed):
    logits = jnp.einsum("btd,vd->btv", hidden, weight) / temperature
    logits = jnp.where(allowed, logits, -jnp.inf)
    log_p = jax.nn.log_softmax(logits)
    plogp = jnp.where(allowed, jnp.exp(log_p) * jnp.where(allowed, log_p, 0.0), 0.0)
    log_prob = jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0]
    return log_prob, -plogp.sum(-1)


def scalar(outputs):
    """A loss in which every token's two outputs have their own weight."""
    log_prob, entropy = outputs
    w = jnp.arange(1.0, B * T + 1).reshape(B, T)
    return jnp.sum(jnp.sin(w) * log_prob) + jnp.sum(jnp.cos(w) * entropy)


@pytest.mark.parametrize("chunk", [1, 3, 7, None])
@pytest.mark.parametrize("masked", [False, True])
def test_value_and_gradient_equal_the_full_head(data, chunk, masked):
    hidden, weight, targets, *_, allowed = data
    allowed = allowed if masked else jnp.ones((B, T, V), bool)

    def ours(h, w):
        mask = allowed if masked else None
        return token_log_probs(
            h, w, targets, temperature=0.7, logit_mask=mask, chunk=chunk
        )

    def full(h, w):
        return full_head(h, w, targets, 0.7, allowed)

    for got, want in zip(ours(hidden, weight), full(hidden, weight), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)
    got = jax.grad(lambda *a: scalar(ours(*a)), (0, 1))(hidden, weight)
    want = jax.grad(lambda *a: scalar(full(*a)), (0, 1))(hidden, weight)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5)


def test_every_form_of_mask_means_the_same(data):
    hidden, weight, targets, table, index, _ = data
    dense = token_log_probs(hidden, weight, targets, logit_mask=table[index], chunk=3)
    by_table = token_log_probs(
        hidden, weight, targets, logit_mask=MaskTable(table, index), chunk=3
    )
    np.testing.assert_array_equal(dense.log_prob, by_table.log_prob)
    np.testing.assert_array_equal(dense.entropy, by_table.entropy)
    row = token_log_probs(hidden, weight, targets, logit_mask=table[1])
    tiled = token_log_probs(
        hidden,
        weight,
        targets,
        logit_mask=jnp.broadcast_to(table[1][None, None], (B, T, V)),
    )
    np.testing.assert_allclose(row.log_prob, tiled.log_prob, rtol=1e-6)


def test_probabilities_sum_to_one_over_the_allowed_words(data):
    hidden, weight, _, table, *_ = data
    words = jnp.broadcast_to(jnp.arange(V)[:, None, None], (V, B, T))
    log_prob = jax.vmap(
        lambda y: token_log_probs(hidden, weight, y, logit_mask=table[1]).log_prob
    )(words)
    prob = jnp.exp(log_prob)
    np.testing.assert_allclose(prob.sum(0), 1.0, rtol=1e-5)
    assert np.all(np.asarray(prob)[~np.asarray(table[1])] == 0)


def test_forbidden_target_and_empty_mask_stay_finite(data):
    hidden, weight, targets, *_ = data
    nothing = jnp.zeros((B, T, V), bool)
    free = token_log_probs(hidden, weight, targets)
    empty = token_log_probs(hidden, weight, targets, logit_mask=nothing)
    np.testing.assert_array_equal(free.log_prob, empty.log_prob)

    other = ~jax.nn.one_hot(targets, V, dtype=bool)  # all but the target

    def loss(h, w):
        return scalar(token_log_probs(h, w, targets, logit_mask=other))

    value, grads = jax.value_and_grad(loss, (0, 1))(hidden, weight)
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in grads)


def test_extreme_logits_keep_gradients_finite(data):
    _, weight, targets, *_ = data
    hidden = 300.0 * jnp.ones((B, T, D))

    def loss(h, w):
        return scalar(token_log_probs(h, w, targets, temperature=0.05))

    value, grads = jax.value_and_grad(loss, (0, 1))(hidden, weight)
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in grads)


def test_bfloat16_trunk_gives_float32_outputs_and_a_close_gradient(data):
    hidden, weight, targets, *_ = data
    low = hidden.astype(jnp.bfloat16)
    out = token_log_probs(low, weight, targets, chunk=2)
    assert out.log_prob.dtype == out.entropy.dtype == jnp.float32
    exact = full_head(
        low.astype(jnp.float32),
        weight.astype(jnp.bfloat16).astype(jnp.float32),
        targets,
        1.0,
        jnp.ones((B, T, V), bool),
    )
    np.testing.assert_allclose(out.log_prob, exact[0], rtol=1e-5, atol=1e-5)

    def grad_w(h, w):
        return jax.grad(lambda w: scalar(token_log_probs(h, w, targets, chunk=2)))(w)

    got, want = grad_w(low, weight), grad_w(hidden, weight)
    assert got.dtype == weight.dtype
    assert np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want)


def test_no_array_of_the_size_of_the_logits_is_made():
    """The largest array in the compiled gradient is far below B * T * V."""
    length, vocab = 64, 4096
    hidden = jax.ShapeDtypeStruct((B, length, D), jnp.float32)
    weight = jax.ShapeDtypeStruct((vocab, D), jnp.float32)
    targets = jax.ShapeDtypeStruct((B, length), jnp.int32)

    def loss(h, w, y):
        out = token_log_probs(h, w, y, chunk=4)
        return jnp.sum(out.log_prob + out.entropy)

    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(hidden, weight, targets).compile()
    temp = compiled.memory_analysis().temp_size_in_bytes
    assert temp < B * length * vocab * 4 / 3


def test_chunk_length_bounds_the_logits():
    assert chunk_length(1, 248_320) * 248_320 <= 2**27
    assert chunk_length(64, 10**9) == 1


@pytest.mark.parametrize(
    ("mask", "message"),
    [(jnp.ones((B, V), bool), "logit mask"), (jnp.ones(V - 1, bool), "logit mask")],
)
def test_misfits_are_refused(data, mask, message):
    hidden, weight, targets, *_ = data
    with pytest.raises(ValueError, match=message):
        token_log_probs(hidden, weight, targets, logit_mask=mask)
    with pytest.raises(AssertionError):
        token_log_probs(hidden, weight[:, 1:], targets)
    with pytest.raises(ValueError, match="chunk"):
        token_log_probs(hidden, weight, targets, chunk=0)
