"""Tabular policy updates against closed forms and automatic differentiation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax import updates

X, A = 3, 5


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return (
        jnp.asarray(rng.normal(size=(X, A)), jnp.float32),
        jnp.asarray(rng.normal(size=(X, A)), jnp.float32),
    )


def test_spg_is_the_gradient_of_the_expected_value(table):
    logits, q = table
    gradient = jax.grad(lambda t: (jax.nn.softmax(t) * q).sum())(logits)
    got = updates.spg(logits, q, step_size=0.3)
    np.testing.assert_allclose(got, logits + 0.3 * gradient, rtol=1e-5, atol=1e-6)


def test_npg_is_the_gradient_times_the_inverse_fisher_matrix(table):
    logits, q = (np.asarray(v, np.float64) for v in table)
    got = np.asarray(updates.npg(*table, step_size=0.3)) - logits
    for x in range(X):
        policy = np.exp(logits[x]) / np.exp(logits[x]).sum()
        fisher = np.diag(policy) - np.outer(policy, policy)
        gradient = policy * (q[x] - policy @ q[x])
        natural = 0.3 * np.linalg.pinv(fisher) @ gradient
        # Logits are defined up to a constant per context.
        np.testing.assert_allclose(
            got[x] - got[x].mean(), natural - natural.mean(), rtol=1e-4, atol=1e-5
        )


def test_npg_multiplies_probabilities_by_boltzmann_weights(table):
    logits, q = table
    new = jax.nn.softmax(updates.npg(logits, q, step_size=0.7))
    want = np.asarray(jax.nn.softmax(logits)) * np.exp(0.7 * np.asarray(q))
    np.testing.assert_allclose(new, want / want.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("rule", [updates.npg, updates.spg])
def test_a_row_with_a_bad_value_is_left_alone(table, rule):
    logits, q = table
    for bad in (np.nan, np.inf, -np.inf):
        got = rule(logits, q.at[1, 2].set(bad), step_size=1.0)
        np.testing.assert_array_equal(got[1], logits[1])
        want = rule(logits, q, step_size=1.0)
        np.testing.assert_array_equal(got[::2], want[::2])


def test_extreme_logits_stay_finite():
    logits = jnp.array([[1e4, 0.0, -1e4]])
    for rule in (updates.npg, updates.spg):
        got = rule(logits, jnp.array([[0.0, 1.0, 2.0]]), step_size=1.0)
        assert np.isfinite(got).all()


def reference_ppo(logits, context, action, advantage, mask, step, eps, epochs):
    """Clipped-surrogate ascent in float64, sample by sample."""
    theta = np.asarray(logits, np.float64).copy()

    def policy():
        e = np.exp(theta - theta.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    old = policy()
    for _ in range(epochs):
        now, grad = policy(), np.zeros_like(theta)
        for x, a, adv, m in zip(context, action, advantage, mask, strict=True):
            w = now[x, a] / old[x, a]
            clipped = min(max(w, 1 - eps), 1 + eps)
            if m and clipped * adv >= w * adv:
                score = -now[x].copy()
                score[a] += 1
                grad[x] += w * adv * score / mask.sum()
        theta += step * grad
    return theta


def test_ppo_against_loops(table):
    rng = np.random.default_rng(2)
    context, action = rng.integers(0, X, 40), rng.integers(0, A, 40)
    advantage = rng.normal(size=40).astype(np.float32)
    mask = rng.random(40) < 0.8
    got = updates.ppo(
        table[0],
        *(jnp.asarray(v) for v in (context, action, advantage, mask)),
        step_size=2.0,
        clip_eps=0.2,
        num_epochs=6,
    )
    args = (context, action, advantage, mask, 2.0)
    want = reference_ppo(table[0], *args, 0.2, 6)
    free = reference_ppo(table[0], *args, 1e9, 6)
    assert np.abs(want - free).max() > 1e-2  # clipping was active
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_ppo_moves_probability_to_the_better_action():
    context = jnp.zeros(4, jnp.int32)
    action = jnp.array([0, 1, 0, 1])
    advantage = jnp.array([1.0, -1.0, 1.0, -1.0])
    logits = jnp.zeros((2, 3))
    step = jax.jit(functools.partial(updates.ppo, step_size=1.0))
    for _ in range(30):
        logits = step(logits, context, action, advantage, jnp.ones(4, bool))
    policy = jax.nn.softmax(logits)
    assert policy[0, 0] > 0.9
    np.testing.assert_allclose(policy[1], 1 / 3)  # a context without data stays


def test_ppo_masks_rows_out_of_range(table):
    # -1 would be the last context or action, X and A would be clamped to it.
    context = jnp.array([0, 1, -1, X, 0, 1])
    action = jnp.array([0, 1, 2, 1, -1, A])
    advantage = jnp.array([1.0, -1.0, 5.0, 5.0, 5.0, 5.0])
    step = jax.jit(functools.partial(updates.ppo, step_size=1.0))
    got = step(table[0], context, action, advantage, jnp.ones(6, bool))
    fine = (v[:2] for v in (context, action, advantage, jnp.ones(6, bool)))
    np.testing.assert_allclose(got, step(table[0], *fine), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[2], table[0][2], rtol=1e-6)
