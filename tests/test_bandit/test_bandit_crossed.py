"""Crossed effects against dense float64 algebra: posterior, likelihood, others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bandit import crossed

NUM_CONTEXTS, NUM_ACTIONS = 3, 5


def problem(seed, *, missing=0.3):
    rng = np.random.default_rng(seed)
    parts = crossed.Components(*(float(v) for v in [0.3, *rng.uniform(0.05, 0.5, 3)]))
    shape = NUM_CONTEXTS, NUM_ACTIONS
    tried = rng.random(shape) > missing
    tried[0, 0] = True
    return rng.normal(0.3, 0.6, shape), rng.uniform(0.01, 1.0, shape), tried, parts


def dense(tried, parts, noise):
    """Covariance of q over all cells, and the rows of y, in float64."""
    x, a = np.indices((NUM_CONTEXTS, NUM_ACTIONS)).reshape(2, -1)
    effects = parts.arm * (a[:, None] == a) + parts.context * (x[:, None] == x)
    value = effects + parts.cell * np.eye(len(x))
    rows = np.flatnonzero(tried.ravel())
    observed = value[np.ix_(rows, rows)] + np.diag(noise.ravel()[rows])
    return effects, value, observed, rows


@pytest.mark.parametrize("seed", range(6))
def test_posterior_and_likelihood_are_those_of_the_dense_model(seed):
    value, noise, tried, parts = problem(seed)
    weight = crossed.precision(jnp.asarray(noise), jnp.asarray(tried), parts)
    found = crossed.posterior(jnp.asarray(value), weight, parts)
    effects, _, observed, rows = dense(tried, parts, noise)
    y = value.ravel()[rows]
    gain = effects[:, rows] @ np.linalg.inv(observed)
    mean = parts.mean + gain @ (y - parts.mean)
    variance = np.diag(effects - gain @ effects[rows])
    np.testing.assert_allclose(found.fitted.ravel(), mean, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(found.variance.ravel(), variance, rtol=1e-3, atol=1e-5)
    likelihood = stats.multivariate_normal(
        np.full(len(rows), parts.mean), observed
    ).logpdf(y)
    assert float(found.log_likelihood) == pytest.approx(likelihood, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_leave_one_out_is_the_posterior_without_the_cells_own_data(seed):
    value, noise, tried, parts = problem(seed)
    weight = crossed.precision(jnp.asarray(noise), jnp.asarray(tried), parts)
    found = crossed.posterior(jnp.asarray(value), weight, parts)
    mean, variance = crossed.others_say(jnp.asarray(value), weight, found, parts)
    _, prior, _, _ = dense(tried, parts, noise)
    for cell in range(NUM_CONTEXTS * NUM_ACTIONS):
        rows = [r for r in np.flatnonzero(tried.ravel()) if r != cell]
        observed = prior[np.ix_(rows, rows)] + np.diag(noise.ravel()[rows])
        gain = prior[cell, rows] @ np.linalg.inv(observed)
        left_out = parts.mean + gain @ (value.ravel()[rows] - parts.mean)
        spread = prior[cell, cell] - gain @ prior[rows, cell]
        assert float(mean.ravel()[cell]) == pytest.approx(left_out, rel=1e-3, abs=1e-4)
        assert float(variance.ravel()[cell]) == pytest.approx(spread, rel=1e-3)


def test_each_em_step_raises_the_likelihood():
    value, noise, tried, parts = problem(0)
    arrays = [jnp.asarray(v) for v in (value, noise, tried)]
    parts = crossed.Components(*map(jnp.float32, parts))
    found = []
    for _ in range(30):
        weight = crossed.precision(arrays[1], arrays[2], parts)
        found.append(float(crossed.posterior(arrays[0], weight, parts).log_likelihood))
        parts = crossed.learn(*arrays, parts, prior_sd=0.3, prior_count=0.0)
    assert (np.diff(found) > -1e-4).all()
    assert found[-1] > found[0]


@pytest.mark.parametrize(("cell", "additive"), [(0.02, True), (0.5, False)])
def test_learning_how_much_is_shared(cell, additive):
    rng = np.random.default_rng(1)
    shape = 20, 30
    arm, context = rng.normal(0, 0.4, shape[1]), rng.normal(0, 0.2, shape[0])
    value = arm + context[:, None] + rng.normal(0, cell, shape)
    noise = np.full(shape, 0.01)
    value = value + rng.normal(0, 0.1, shape)
    step = jax.jit(
        lambda parts: crossed.learn(
            *map(jnp.asarray, (value, noise, np.ones(shape, bool))),
            parts, prior_sd=0.3, prior_count=1.0,
        )
    )  # fmt: skip
    parts = crossed.Components(*map(jnp.float32, (0.0, 0.09, 0.09, 0.09)))
    for _ in range(200):
        parts = step(parts)
    sd = float(parts.cell) ** 0.5
    assert sd < 0.06 if additive else sd == pytest.approx(cell, rel=0.15)
    assert float(parts.arm) ** 0.5 == pytest.approx(arm.std(), rel=0.3)
