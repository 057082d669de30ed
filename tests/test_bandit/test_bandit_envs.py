"""Environments against check values, Monte Carlo and brute force."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from bandit import envs, ucb

CHECKS = [
    (4, 4, 0.701491269, 0.696896779),
    (4, 5, 0.701491269, 0.696896779),
    (4, 30, 0.701491269, 0.696896779),
    (8, 70, 0.595875960, 0.586750061),
    (64, 160, 0.477842674, 0.464477432),
]


@pytest.mark.parametrize(("num_contexts", "num_arms", "normal", "lognormal"), CHECKS)
def test_optimal_rate_check_values(num_contexts, num_arms, normal, lognormal):
    for name in envs.ENV_NAMES:
        expected = lognormal if name == "E4" else normal
        env = envs.make_env(name, num_arms, num_contexts)
        np.testing.assert_allclose(env.rho_star, expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("num_contexts", [1, 2, 3, 5])
@pytest.mark.parametrize("num_arms", [1, 2, 4, 5, 7])
def test_any_size_and_rate_equals_brute_force(num_arms, num_contexts):
    env = envs.make_env("E4", num_arms, num_contexts)
    assert env.mean_reward.shape == (num_contexts, num_arms + 1)
    rows = np.arange(num_contexts)
    if (num_arms + 1) ** num_contexts > 50_000:
        env = jax.tree.map(lambda a: a[:4] if np.ndim(a) else a, env)
        rows = rows[:4]
    best = max(
        env.mean_reward[rows, list(u)].sum() / env.mean_duration[rows, list(u)].sum()
        for u in itertools.product(range(num_arms + 1), repeat=len(rows))
    )
    rate = envs.optimal_rate(env.mean_reward, env.mean_duration)
    np.testing.assert_allclose(rate, best, rtol=1e-13)


def test_locations_follow_the_protocol():
    reward, duration = envs.locations(8, 6)
    scales = [1.5, 1.0, 1.0, 0.32, 1.35 - 0.93 * 0.25, 1.35 - 0.93 * 0.75]
    featured = np.array([(0.50, 1.0), (0.57, 1.2), (0.90, 3.0), (0.21, 0.6)])
    for x, scale in enumerate(scales):
        rate = reward[x, 4:] / duration[x, 4:]
        np.testing.assert_allclose(
            rate, scale * (0.42 + np.arange(4) * (0.18 - 0.42) / 3)
        )
        assert ((duration[x, 4:] >= 0.70) & (duration[x, 4:] <= 2.00)).all()
        if x != 1:
            np.testing.assert_allclose(reward[x, :4], featured[:, 0] * scale)
            np.testing.assert_allclose(duration[x, :4], featured[:, 1])
    np.testing.assert_allclose(reward[1, :4], [1.80, 1.00, 1.60, 0.20])
    np.testing.assert_allclose(duration[1, :4], [2.0, 1.0, 3.0, 0.6])
    again = envs.locations(8, 6)
    np.testing.assert_array_equal(duration, again[1])
    assert not np.array_equal(duration[:4], envs.locations(8, 4)[1])


@pytest.mark.parametrize("bad", [(0, 4), (4, 0), (-1, 4), (4, -1)])
def test_empty_instances_are_refused(bad):
    with pytest.raises(ValueError, match="at least 1"):
        envs.locations(*bad)
    with pytest.raises(ValueError, match="E1"):
        envs.make_env("E9", 4)


def test_closed_forms_against_quadrature():
    for mean, sd in [(0.01, 0.2), (0.5, 0.2), (-0.3, 0.2), (3.0, 0.1)]:
        exact, _ = integrate.quad(
            lambda v, m=mean, s=sd: v * stats.norm.pdf(v, m, s), 0, mean + 12 * sd + 1
        )
        np.testing.assert_allclose(
            envs.rectified_normal_mean(mean, sd), exact, atol=1e-9
        )
    for mean in [0.1, 0.6, 3.0]:
        law = stats.lognorm(0.5, scale=mean * np.exp(-0.125))
        exact, _ = integrate.quad(
            lambda v, law=law: max(v, 0.5) * law.pdf(v), 0, 60, points=[0.5], limit=400
        )
        np.testing.assert_allclose(
            envs.floored_lognormal_mean(mean, 0.5, 0.5), exact, rtol=1e-6
        )


@pytest.mark.parametrize("name", envs.ENV_NAMES)
def test_monte_carlo_means_and_correlation(name, key):
    env = envs.make_env(name, 6, 4)
    env32 = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), env)
    count = 40_000
    shape = env.mean_reward.shape
    z1, z2 = envs.correlate(env32, jax.random.normal(key, (count, *shape, 2)))
    skip = jnp.broadcast_to(jnp.arange(shape[1]) == shape[1] - 1, shape)
    reward, duration = envs.outcome(
        env32.reward_loc[None],
        env32.duration_loc[None],
        skip[None],
        z1,
        z2,
        env32.lognormal,
    )
    reward, duration = np.asarray(reward, float), np.asarray(duration, float)
    for sample, exact in ((reward, env.mean_reward), (duration, env.mean_duration)):
        error = sample.std(axis=0) / count**0.5
        assert (np.abs(sample.mean(axis=0) - exact) < 5.5 * error + 1e-6).all()
    assert (reward[..., -1] == 0).all()
    np.testing.assert_allclose(duration[..., -1], 0.35, rtol=1e-6)
    assert (reward >= 0).all()
    assert (duration[..., :-1] >= 0.5).all()
    corr = np.corrcoef(np.ravel(z1), np.ravel(z2))[0, 1]
    assert abs(corr - env.correlation) < 6 / (count * shape[0] * shape[1]) ** 0.5


def test_permutation_keeps_the_rate_and_the_last_place_of_skip(key):
    env = envs.make_env("E2", 7, 5)
    shuffled = envs.permuted(
        env, jax.random.permutation(key, 5), jax.random.permutation(key, 7)
    )
    rate = envs.optimal_rate(
        np.asarray(shuffled.mean_reward, float),
        np.asarray(shuffled.mean_duration, float),
    )
    np.testing.assert_allclose(rate, env.rho_star, rtol=1e-6)
    np.testing.assert_allclose(shuffled.mean_duration[:, -1], 0.35, rtol=1e-6)
    for field in ("mean_reward", "duration_loc"):
        before, after = getattr(env, field), np.asarray(getattr(shuffled, field))
        np.testing.assert_allclose(
            np.sort(after, axis=None), np.sort(before, axis=None), rtol=1e-6
        )
        assert not np.allclose(after, before)


def test_gaps_are_the_pseudo_regret(key):
    env = envs.make_env("E1", 5, 4)
    table = np.asarray(envs.gaps(env))
    assert table.min() == 0
    relative = env.mean_reward - env.rho_star * env.mean_duration
    np.testing.assert_allclose(table.min(axis=1), 0)
    np.testing.assert_allclose(relative.max(axis=1).mean(), 0, atol=1e-12)


def test_cucb_theory_constants():
    for num_arms in (5, 30):
        c1, c2 = ucb.theory_constants(envs.make_env("E1", num_arms, 4))
        np.testing.assert_allclose([c1, c2], [3032.4565, 272.1801], atol=1e-4, rtol=0)
