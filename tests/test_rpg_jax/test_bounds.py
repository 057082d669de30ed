"""Bounds on entry, one by one: each fault that was met has its own message."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rpg_jax
from rpg_jax import checked_batch, conjugate, losses, rates


@pytest.mark.parametrize(
    ("reward", "duration", "message"),
    [
        ([1.0, 1e300], [1.0, 1.0], "reward must be at most 1e.12 in size.* rows 1"),
        ([1.0, 1.0], [1.0, 1e-50], r"duration must be in \[1e-09, 1e.10\] seconds"),
        ([1.0, 1.0], [1.0, 1e16], r"duration must be in \[1e-09, 1e.10\].* rows 1"),
    ],
)
def test_batches_stay_in_the_bounds_of_float32_and_of_clocks(reward, duration, message):
    with pytest.raises(ValueError, match=message):
        checked_batch(reward, duration)


def test_estimators_count_what_is_out_of_bounds():
    batch = checked_batch(np.ones(4), np.ones(4))
    batch = batch._replace(duration=jnp.array([1.0, 1e16, 1e-30, 2.0]))
    state = jax.jit(rates.empirical().update)(rates.empirical().init(), batch)
    assert state.rejected == 2


def test_a_missing_index_is_no_first_cell():
    batch = checked_batch([1.0], [1.0])
    estimator = rates.niw(2, 2)
    state = estimator.update(estimator.init(), batch)
    assert state.rejected == 1
    assert not state.number.any()
    with pytest.raises(ValueError, match="needs context and action for every row"):
        checked_batch([1.0], [1.0], needs=estimator.needs)
    single = rates.niw(1, 1)
    assert single.update(single.init(), batch).rejected == 0


TABLES = [[3, 1], [2, 2]], [[2, 1], [4, 1]]


def test_integer_tables_and_lists_are_tables():
    got = rpg_jax.optimal_rate(*TABLES)
    want = rpg_jax.optimal_rate(*(jnp.asarray(v, jnp.float32) for v in TABLES))
    assert got.rate == want.rate > 0


@pytest.mark.parametrize(
    ("duration", "probs", "message"),
    [
        ([[0, 1], [1, 1]], None, "duration must be finite and in"),
        ([[-1, 1], [1, 1]], None, "duration must be finite and in"),
        ([[1, 1], [1, 1]], [-1.0, 2.0], "context_probs must be 2"),
        ([[1, 1], [1, 1]], [1.0], "context_probs must be 2"),
    ],
)
def test_rates_of_no_seconds_and_negative_weights_are_refused(duration, probs, message):
    with pytest.raises(ValueError, match=message):
        rpg_jax.optimal_rate(TABLES[0], duration, context_probs=probs)


@pytest.mark.parametrize("factor", [2.0, 0.0, -1.0, np.nan])
def test_a_posterior_forgets_a_share(factor):
    with pytest.raises(ValueError, match="factor must be finite and in"):
        conjugate.forget(conjugate.niw_prior(), factor)


def test_priors_of_three_coordinates():
    prior = rpg_jax.niw_prior(dim=3)
    data = rpg_jax.moments(np.arange(12.0).reshape(4, 3))
    assert rpg_jax.posterior(prior, data).mean.shape == (3,)
    with pytest.raises(ValueError, match="NIW must be of 2 coordinates, got 3"):
        rates.niw(2, 2, prior=prior)
    with pytest.raises(ValueError, match=r"need kappa > 0 and nu > 3"):
        rpg_jax.niw_prior(dim=4)


def test_a_member_that_is_not_finite_leaves_its_group_as_it_was():
    reward = jnp.array([[1.0, jnp.nan, 3.0], [1.0, 2.0, 3.0]])
    for advantage in (
        losses.leave_one_out_advantage(reward),
        jax.jit(losses.leave_one_out_advantage)(reward),
    ):
        np.testing.assert_allclose(advantage, [[-2, 0, 2], [-1.5, 0, 1.5]])
    np.testing.assert_array_equal(losses.rejected_members(reward), [1, 0])
