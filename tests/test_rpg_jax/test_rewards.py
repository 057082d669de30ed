"""Relative rewards and failure charges, on NumPy and on JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax import rewards


def test_relative_reward_charges_time_and_stops_the_rates_gradient():
    reward, duration = jnp.array([1.0, 0.5]), jnp.array([2.0, 0.1])
    got = rewards.relative_reward(reward, duration, jnp.float32(0.4))
    np.testing.assert_allclose(got, [0.2, 0.46], rtol=1e-6)
    grads = jax.grad(
        lambda r, d, rho: rewards.relative_reward(r, d, rho).sum(), argnums=(0, 1, 2)
    )(reward, duration, jnp.float32(0.4))
    np.testing.assert_allclose(grads[0], [1, 1])
    np.testing.assert_allclose(grads[1], [-0.4, -0.4])
    assert grads[2] == 0


def test_ranking_by_relative_reward_is_ranking_by_rate_at_the_optimum():
    # At the best rate the best action is worth exactly 0 and every other one less.
    reward, duration = jnp.array([0.95, 0.8, 0.3]), jnp.array([20.0, 5.0, 4.0])
    best = jnp.max(reward / duration)
    relative = rewards.relative_reward(reward, duration, best)
    np.testing.assert_allclose(relative[1], 0, atol=1e-6)
    assert (relative[jnp.array([0, 2])] < 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_numpy_it_is_numpys_own_arithmetic(dtype):
    """The loop accounts on the host, in float64: the same bits as written out."""
    rng = np.random.default_rng(0)
    reward, duration = rng.random((2, 1000)).astype(dtype)
    price = float(rng.random())
    got = rewards.relative_reward(reward, duration, price)
    assert isinstance(got, np.ndarray)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, reward - price * duration)
    charged = rewards.charged_duration(duration, reward < 0.5)
    assert isinstance(charged, np.ndarray)
    assert charged.dtype == dtype
    slowest = duration[reward >= 0.5].max()
    want = np.where(reward < 0.5, np.maximum(duration, slowest), duration)
    np.testing.assert_array_equal(charged, want)


def test_jax_among_the_arguments_gives_jax():
    for reward in (np.ones(2, np.float32), jnp.ones(2)):
        got = rewards.relative_reward(reward, jnp.ones(2), 0.5)
        assert isinstance(got, jax.Array)
    traced = jax.jit(rewards.relative_reward)(1.0, 2.0, 0.25)
    assert traced == 0.5


def test_a_crash_never_outranks_a_valid_attempt():
    # Without the charge the instant crash would be first: 0 > every relative reward.
    reward = jnp.array([0.1, 0.3, 0.0])
    duration = jnp.array([30.0, 50.0, 0.1])
    failed = jnp.array([False, False, True])
    rate = 0.02
    free = rewards.relative_reward(reward, duration, rate)
    assert jnp.argmax(free) == 2
    charged = rewards.charged_duration(duration, failed)
    np.testing.assert_allclose(charged, [30, 50, 50])
    ranked = rewards.relative_reward(reward, charged, rate)
    assert jnp.argmin(ranked) == 2


def test_charges_by_name():
    duration, failed = jnp.array([3.0, 900.0]), jnp.array([False, True])
    for charge, want in [("measured", 900.0), ("slowest", 900.0), ("limit", 1200.0)]:
        got = rewards.charged_duration(duration, failed, charge=charge, limit=1200.0)
        np.testing.assert_allclose(got, [3.0, want])


def test_charges_refuse_bad_arguments():
    one = jnp.ones(1)
    with pytest.raises(ValueError, match="measured, slowest or limit"):
        rewards.charged_duration(one, one > 0, charge="free")
    with pytest.raises(ValueError, match="time limit"):
        rewards.charged_duration(one, one > 0, charge="limit")


def test_a_batch_of_failures_alone_is_charged_what_it_took():
    got = rewards.charged_duration(jnp.array([0.5, 2.0]), jnp.array([True, True]))
    np.testing.assert_allclose(got, [0.5, 2.0])
