"""The agent that learns how much arms share, and the constant beside its regret."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bandit import bound, envs, shared_sampling
from bandit.agents import AGENTS
from bandit.instance import draw, permuted
from bandit.simulate import simulate


def test_beliefs_join_by_precision():
    mean, variance = jnp.asarray([0.0, 0.2, 0.5]), jnp.asarray([0.5, 0.3, 0.9])
    value, noise = jnp.asarray([1.0, jnp.nan, 0.4]), jnp.asarray([0.25, jnp.inf, 0.01])
    found = shared_sampling.believe(mean, variance, value, noise)
    precision = 1 / 0.5 + 1 / 0.25
    assert float(found.mean[0]) == pytest.approx((1.0 / 0.25) / precision)
    assert float(found.mean[1]) == pytest.approx(0.2)
    # What is common and what is an action's own add up to the posterior variance.
    total = found.own + found.common**2
    np.testing.assert_allclose(total[:2], [1 / precision, 0.3], rtol=1e-6)
    assert (found.own >= 0).all()
    assert float(found.own[1]) == pytest.approx(0.0, abs=1e-7)


def additive(seed):
    """An instance in which an arm is worth about the same in all contexts."""
    rng = np.random.default_rng(seed)
    seconds = np.broadcast_to(rng.uniform(0.6, 2.0, 20), (12, 20))
    return envs.env_of("E1", rng.uniform(0.1, 0.9, 20) * seconds, seconds)


def test_sharing_pays_where_arms_share_and_the_rate_is_right():
    env, seeds = additive(0), np.arange(6)
    regret = {}
    for name in ("shared", "posterior"):
        spec = AGENTS[name]
        hyper = {k: np.array([v]) for k, v in spec.defaults.items()}
        found = simulate(jax.random.key(0), spec.build, env, hyper, seeds, 1500)
        regret[name] = found.pseudo_regret[-1].mean()
    assert regret["shared"] < 0.6 * regret["posterior"]


def test_arguments_are_checked():
    for bad in ({"scale": -1.0}, {"prior_sd": 0.0}, {"every": 0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            shared_sampling.shared_sampling(2, 3, **bad)


@pytest.mark.parametrize("name", envs.ENV_NAMES)
def test_noise_variance_is_that_of_draws(name):
    env = envs.make_env(name, 3, 2)
    found = bound.noise_variance(env)
    like = permuted(env, jnp.arange(2), jnp.arange(3))
    normals = jax.random.normal(jax.random.key(0), (40_000, 2))
    one = jax.vmap(lambda z: draw(like, jnp.asarray(1), jnp.asarray(2), z))
    reward, seconds = one(normals)
    value = np.asarray(reward) - float(env.rho_star) * np.asarray(seconds)
    assert found[1, 2] == pytest.approx(value.var(), rel=0.06)
    np.testing.assert_allclose(found[:, -1], 0.0, atol=1e-6)  # SKIP
    assert bound.log_constant(env) > 0
