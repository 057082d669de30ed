"""The rate by cells: posterior means, quantiles, weights of contexts, forgetting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rates_help import WORLD, A, B, X, draw

from rpg_jax import conjugate, dinkelbach, rates
from rpg_jax.types import Batch, checked_batch


@pytest.mark.parametrize("log_duration", [False, True])
def test_cell_means_and_greedy_rate(log_duration):
    estimator = rates.niw(X, A, log_duration=log_duration, forgetting=1.0)
    state = estimator.init()
    batches = [draw(WORLD, s, size=800) for s in range(3)]
    for batch in batches:
        state = jax.jit(estimator.update)(state, batch)
    assert state.number.sum() == 2400
    c, a, r, d = (
        np.concatenate([np.asarray(b[i], np.float64) for b in batches])
        for i in range(4)
    )
    reward, duration = np.empty((X, A)), np.empty((X, A))
    for x in range(X):
        for k in range(A):
            rows = (c == x) & (a == k)
            reward[x, k], duration[x, k] = r[rows].mean(), d[rows].mean()
            if log_duration:
                logs = np.log(d[rows])
                duration[x, k] = np.exp(logs.mean() + logs.var() / 2)
    rate = jax.jit(estimator.rate)
    for rho in (0.0, 0.4, 1.5):
        u = np.argmax(reward - rho * duration, axis=1)
        want = reward[range(X), u].sum() / duration[range(X), u].sum()
        np.testing.assert_allclose(rate(state, rho), want, rtol=3e-3)
    best = dinkelbach.optimal_rate(*(jnp.asarray(v, jnp.float32) for v in WORLD)).rate
    got = rates.fixed_point(estimator, state, 0.0)
    np.testing.assert_allclose(got, best, rtol=0.03)


def test_untried_arms_and_contexts_are_not_considered():
    estimator = rates.niw(X, A)
    # Context 2 is never seen; the untried arms' prior mean (0 reward in 0 s) is no arm.
    batch = checked_batch(
        [-1.0, 2.0], [1.0, 4.0], context=np.array([0, 1]), action=np.array([0, 3])
    )
    state = jax.jit(estimator.update)(estimator.init(), batch)
    got = jax.jit(estimator.rate)(state, 0.0)
    np.testing.assert_allclose(got, 1 / 5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64])
def test_indices_of_any_integer_type_name_the_same_cell(dtype):
    """64 x 16 cells: their numbers do not fit eight bits."""
    rng = np.random.default_rng(3)
    context, action = rng.integers(0, 64, B), rng.integers(0, 16, B)
    batch = checked_batch(
        rng.normal(size=B), rng.uniform(1, 2, B), context=context, action=action
    )
    narrow = batch._replace(context=context.astype(dtype), action=action.astype(dtype))
    estimator = rates.niw(64, 16)
    got, want = (estimator.update(estimator.init(), b) for b in (narrow, batch))
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(g, w)


def test_context_probabilities_weigh_the_contexts():
    estimator = rates.niw(2, 1, context_probs=jnp.array([0.9, 0.1]))
    batch = checked_batch([1.0, 3.0], [1.0, 2.0], context=np.array([0, 1]))
    state = jax.jit(estimator.update)(estimator.init(), batch)
    got = jax.jit(estimator.rate)(state, 0.0)
    np.testing.assert_allclose(got, 1.2 / 1.1, rtol=1e-5)


def test_quantile_is_optimistic_and_shrinks_with_data():
    kept = {"forgetting": 1.0}
    plain, upper = rates.niw(X, A, **kept), rates.niw(X, A, quantile=0.95, **kept)
    lower = rates.niw(X, A, quantile=0.05, **kept)
    rate = jax.jit(lambda s: [e.rate(s, 0.3) for e in (lower, plain, upper)])
    update = jax.jit(plain.update)
    small = rate(update(plain.init(), draw(WORLD, 6, size=200)))
    large = rate(update(plain.init(), draw(WORLD, 6, size=20_000)))
    assert small[0] < small[1] < small[2]
    assert small[2] - small[1] > 3 * (large[2] - large[1]) > 0


def test_quantile_covers_the_truth_as_often_as_it_says():
    # One cell, 30 pairs: the 90% quantile of the rate lies above the true rate in 90%
    # of 400 data sets (band: 5 binomial standard errors).
    estimator = rates.niw(1, 1, quantile=0.9)
    rng = np.random.default_rng(7)
    z = rng.normal(size=(2, 400, 30))
    reward = 1 + 0.4 * z[0]
    duration = 3 + 0.6 * z[1]
    zeros = jnp.zeros((400, 30), jnp.int32)
    batch = Batch(
        zeros,
        zeros,
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(duration, jnp.float32),
        jnp.ones((400, 30), bool),
    )
    start = estimator.init()
    got = jax.jit(jax.vmap(lambda b: estimator.rate(estimator.update(start, b), 0.0)))(
        batch
    )
    share = float((got > 1 / 3).mean())
    assert abs(share - 0.9) < 5 * np.sqrt(0.09 / 400)


def test_forgetting_follows_a_change():
    moved = (WORLD[0] * 3, WORLD[1])
    estimates = {}
    for f in (1.0, 0.5):
        estimator = rates.niw(X, A, forgetting=f)
        update = jax.jit(estimator.update)
        state = estimator.init()
        for s in range(10):
            state = update(state, draw(WORLD, s, size=256))
        for s in range(4):
            state = update(state, draw(moved, s, size=256))
        estimates[f] = float(rates.fixed_point(estimator, state, 0.0))
    target = float(
        dinkelbach.optimal_rate(*(jnp.asarray(v, jnp.float32) for v in moved)).rate
    )
    assert abs(estimates[0.5] / target - 1) < 0.1
    assert abs(estimates[1.0] / target - 1) > 0.3


def test_an_arm_that_is_not_played_fades_beside_those_that_are():
    """Arm 0 earned 10 a second long ago; arm 1 earns 1, decision by decision."""
    estimator = rates.niw(1, 2, forgetting=0.9)
    update = jax.jit(estimator.update)
    first = checked_batch([10.0], [1.0], action=[0], context=[0])
    state = update(estimator.init(), first)
    for _ in range(40):
        state = update(state, checked_batch([1.0], [1.0], action=[1], context=[0]))
    np.testing.assert_allclose(rates.fixed_point(estimator, state, 0.0), 1, rtol=1e-3)
    assert state.fresh[0, 0] < 0.05
    state = update(state, checked_batch([2.0], [1.0], action=[0], context=[0]))
    np.testing.assert_allclose(rates.fixed_point(estimator, state, 0.0), 2, rtol=0.1)


def test_a_context_without_visits_keeps_its_arms():
    estimator = rates.niw(2, 1, forgetting=0.5)
    update = jax.jit(estimator.update)
    state = update(
        estimator.init(), checked_batch([3.0], [1.0], context=[0], action=[0])
    )
    other = checked_batch([1.0], [1.0], context=[1], action=[0])
    for _ in range(200):
        state = update(state, other)
    np.testing.assert_allclose(estimator.rate(state, 0.0), 2.0, rtol=1e-3)
    for leaf in jax.tree.leaves(state):
        assert np.isfinite(leaf).all()
    # Faded, but never below what the prior knows.
    assert state.cells.kappa[0, 0] >= conjugate.niw_prior().kappa


def test_the_default_memory_does_not_depend_on_the_size_of_batches():
    estimator = rates.niw(X, A)
    update = jax.jit(estimator.update)
    whole = update(update(estimator.init(), draw(WORLD, 1)), draw(WORLD, 2))
    parts = estimator.init()
    for seed in (1, 2):
        batch = draw(WORLD, seed)
        for row in range(0, B, 8):
            rows = jax.tree.map(lambda v, row=row: v[row : row + 8], batch)
            parts = update(parts, rows)
    np.testing.assert_allclose(parts.number, whole.number, rtol=0.2)
    np.testing.assert_allclose(parts.number.sum(), whole.number.sum(), rtol=0.2)


@pytest.mark.parametrize("name", ["empirical", "niw_slots", "niw"])
def test_defaults_follow_a_jump(name):
    build = {
        "empirical": rates.empirical,
        "niw_slots": lambda: rates.niw_slots(64, method="analytic"),
        "niw": lambda: rates.niw(1, 1),
    }
    estimator = build[name]()
    update = jax.jit(estimator.update)
    state = estimator.init()
    for batch in range(40):
        reward = np.full(B, 1.0 if batch < 20 else 3.0)
        batch = checked_batch(
            reward, np.ones(B), context=np.zeros(B, int), action=np.zeros(B, int)
        )
        state = update(state, batch)
    np.testing.assert_allclose(rates.fixed_point(estimator, state, 0.0), 3, rtol=0.1)
