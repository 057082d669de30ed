"""The gated delta rule against the recurrence in float64, also where it is hard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax.llm.deltanet import (
    delta_chunked,
    delta_step,
    invert_unit_lower,
    l2_normalise,
)

B, T, K, R, DK, DV = 2, 150, 3, 2, 8, 12
CHUNKED = jax.jit(delta_chunked)


def inputs(kind, seed=0):
    """Queries, keys, values, decays, strengths, and the state they start from."""
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((2, B, T, K, DK))
    v = rng.standard_normal((B, T, K, R, DV))
    g = -np.exp(rng.uniform(-6, 1, (B, T, K, R)))
    beta = rng.uniform(0, 1, (B, T, K, R))
    if kind == "strong decay":
        g = -np.exp(rng.uniform(2, 7, g.shape))
    elif kind == "no decay":
        g = np.zeros_like(g)
    elif kind == "repeated token":
        # A policy stuck on one token: equal keys, full strength, long memory.
        k[:] = k[:, :1]
        g[:], beta[:] = -1e-4, 0.9999
    elif kind == "jump":
        # One token that forgets everything after much that forgets nothing.
        g[:] = -1e-6
        g[:, 70] = -500.0
    k /= np.sqrt((k**2).sum(-1, keepdims=True))
    q *= DK**-0.5
    return rng.standard_normal((B, K, R, DK, DV)), q, k, v, g, beta


def recurrence(state, q, k, v, g, beta):
    """The definition, token by token, in float64."""
    state, out = state.copy(), []
    for t in range(q.shape[1]):
        state = state * np.exp(g[:, t])[..., None, None]
        read = np.einsum("bkrde,bkd->bkre", state, k[:, t])
        delta = beta[:, t, ..., None] * (v[:, t] - read)
        state = state + np.einsum("bkd,bkre->bkrde", k[:, t], delta)
        out.append(np.einsum("bkrde,bkd->bkre", state, q[:, t]))
    return state, np.stack(out, axis=1)


def as_float32(arrays):
    return [jnp.asarray(x, jnp.float32) for x in arrays]


KINDS = ["plain", "strong decay", "no decay", "repeated token", "jump"]


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_follow_the_recurrence(kind):
    arrays = inputs(kind)
    state, out = recurrence(*arrays)
    got_state, got = CHUNKED(*as_float32(arrays))
    assert np.abs(got - out).max() < 1e-5 * np.abs(out).max()
    assert np.abs(got_state - state).max() < 1e-5 * max(1.0, np.abs(state).max())


@jax.jit
def by_steps(state, *tokens):
    """The one-token form, scanned."""
    xs = tuple(jnp.moveaxis(x, 1, 0) for x in tokens)
    state, out = jax.lax.scan(lambda s, x: delta_step(s, *x), state, xs)
    return state, jnp.moveaxis(out, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_single_steps_follow_the_recurrence(kind):
    arrays = inputs(kind)
    state, out = recurrence(*arrays)
    got_state, got = by_steps(*as_float32(arrays))
    assert np.abs(got - out).max() < 1e-5 * np.abs(out).max()
    assert np.abs(got_state - state).max() < 1e-5 * max(1.0, np.abs(state).max())


def gradient_of(rule):
    """Gradient of a fixed weighting of outputs and final state."""
    weight = jax.random.normal(jax.random.key(3), (B, T, K, R, DV))

    def loss(arrays):
        state, out = rule(*arrays)
        return jnp.sum(out * weight) + jnp.sum(state)

    return jax.jit(jax.grad(loss))


@pytest.fixture(scope="module")
def gradients():
    return gradient_of(delta_chunked), gradient_of(by_steps)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_recurrence(kind, gradients):
    arrays = as_float32(inputs(kind))
    chunked, stepped = (grad(arrays) for grad in gradients)
    for got, want in zip(chunked, stepped, strict=True):
        assert bool(jnp.isfinite(got).all())
        error = float(jnp.abs(got - want).max())
        assert error < 2e-4 * max(1.0, float(jnp.abs(want).max()))


@pytest.mark.parametrize("length", [2, 3, 64, 65])
def test_any_length(length):
    state, *rest = inputs("plain")
    arrays = [state, *(x[:, :length] for x in rest)]
    want_state, want = recurrence(*arrays)
    got_state, got = CHUNKED(*as_float32(arrays))
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    assert np.abs(got_state - want_state).max() < 1e-5 * np.abs(want_state).max()


def test_silent_tokens_leave_no_trace():
    state, q, k, v, g, beta = inputs("plain")
    gap = slice(40, 100)
    for x in (k, g, beta):
        x[:, gap] = 0.0
    short = [np.delete(x, np.r_[gap], axis=1) for x in (q, k, v, g, beta)]
    want_state, _ = recurrence(state, *short)
    got_state, _ = CHUNKED(*as_float32((state, q, k, v, g, beta)))
    assert np.abs(got_state - want_state).max() < 1e-5 * np.abs(want_state).max()


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_inverse_is_exact_where_powers_explode(size):
    # All couplings one: the inverse is bidiagonal, its Neumann terms are binomials.
    strict = jnp.tril(jnp.ones((3, size, size)), -1)
    want = np.eye(size) - np.eye(size, k=-1)
    np.testing.assert_array_equal(invert_unit_lower(strict)[0], want)
    rng = np.random.default_rng(0)
    strict = np.tril(rng.uniform(-1, 1, (size, size)) * 0.3, -1)
    got = invert_unit_lower(jnp.asarray(strict, jnp.float32))
    want = np.linalg.inv(np.eye(size) + strict)
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def test_normalising_a_zero_vector_is_finite():
    value, grad = jax.value_and_grad(lambda x: l2_normalise(x).sum())(jnp.zeros((1, 4)))
    assert float(value) == 0.0
    assert bool(jnp.isfinite(grad).all())


def test_gradient_of_the_inverse_is_that_of_dense_inversion():
    rng = np.random.default_rng(1)
    size = 16
    strict = np.tril(rng.uniform(-1, 1, (size, size)) * 0.4, -1)
    weight = rng.normal(size=(size, size))
    inverse = np.linalg.inv(np.eye(size) + strict)
    # d sum(W Y) = -tr(Y W^T Y dA): exact, in float64.
    want = np.tril(-(inverse.T @ weight @ inverse.T), -1)
    got = jax.grad(lambda a: (invert_unit_lower(a) * jnp.float32(weight)).sum())(
        jnp.float32(strict)
    )
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
