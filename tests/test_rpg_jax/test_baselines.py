"""Regression baselines against explicit refits in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax import leave_one_out_advantage, regression_advantage


def _refits(reward, features, ridge=0.0):
    """Row by row: fit to the others, of least norm; reward minus the prediction."""
    reward, features = np.asarray(reward, float), np.asarray(features, float)
    penalty = np.diag(np.sqrt(np.broadcast_to(ridge, features.shape[1])))
    out = []
    for i in range(len(reward)):
        x = np.concatenate([np.delete(features, i, 0), penalty])
        y = np.concatenate([np.delete(reward, i), np.zeros(len(penalty))])
        out.append(reward[i] - features[i] @ np.linalg.pinv(x) @ y)
    return np.array(out)


def _data(rows, columns, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns))
    x[:, 0] = 1
    return x @ rng.standard_normal(columns) + rng.standard_normal(rows), x


@pytest.mark.parametrize("ridge", [0.0, 0.3, (0.0, 1.0, 2.0)])
@pytest.mark.parametrize("rows", [4, 5, 8, 64, 1024])
def test_leave_one_out_residuals_are_those_of_refits(rows, ridge):
    reward, x = _data(rows, 3, seed=rows)
    ridge = np.array(ridge)
    got = regression_advantage(jnp.array(reward), jnp.array(x), ridge=jnp.array(ridge))
    assert got.dtype == jnp.float32
    want = _refits(reward, x, ridge)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_ones_give_the_leave_one_out_mean(rows):
    reward = jnp.array(np.random.default_rng(rows).standard_normal(rows) + 1000)
    got = regression_advantage(reward, jnp.ones((rows, 1)))
    want = leave_one_out_advantage(reward)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-4)


def test_masked_rows_count_for_nothing():
    reward, x = _data(12, 3)
    mask = np.arange(12) % 3 != 1
    dirty, dirty_x = reward.copy(), x.copy()
    dirty[~mask], dirty_x[~mask] = np.nan, np.inf
    got = regression_advantage(jnp.array(dirty), jnp.array(dirty_x), jnp.array(mask))
    want = np.zeros(12)
    want[mask] = _refits(reward[mask], x[mask])
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["twin columns", "zero column", "lone row", "wide"])
def test_singular_fits_are_those_of_least_norm(case):
    reward, x = _data(7, 3, seed=5)
    if case == "twin columns":
        x[:, 2] = x[:, 1]
    elif case == "zero column":
        x[:, 2] = 0
    elif case == "lone row":
        x[:, 2] = 0
        x[3, 2] = 1  # without this row nothing is known of its column
    else:
        reward, x = _data(3, 5, seed=5)
    got = regression_advantage(jnp.array(reward), jnp.array(x))
    want = _refits(reward, x)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_a_row_does_not_see_its_own_reward():
    reward, x = _data(10, 3)
    ridge = jnp.array([0.0, 1.0, 1.0])
    first = regression_advantage(jnp.array(reward), jnp.array(x), ridge=ridge)
    reward[4] += 7
    second = regression_advantage(jnp.array(reward), jnp.array(x), ridge=ridge)
    assert float(second[4] - first[4]) == pytest.approx(7, rel=1e-4)


def test_it_compiles_and_refuses_wrong_shapes():
    reward, x = _data(6, 2)
    eager = regression_advantage(jnp.array(reward), jnp.array(x))
    jitted = jax.jit(regression_advantage)(jnp.array(reward), jnp.array(x))
    np.testing.assert_allclose(eager, jitted, rtol=1e-5, atol=1e-6)
    assert regression_advantage(jnp.zeros(0), jnp.zeros((0, 2))).shape == (0,)
    for bad in ((jnp.zeros(3), jnp.zeros((4, 2))), (jnp.zeros(3), jnp.zeros(3))):
        with pytest.raises(ValueError):
            regression_advantage(*bad)
