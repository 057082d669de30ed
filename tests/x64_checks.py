"""Checks that need float64; run by test_conjugate_x64.py with JAX_ENABLE_X64=1."""

import itertools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bandit import theory
from rpg_jax import conjugate, dinkelbach, ratio, updates


def hard_data():
    """Data sets that break raw second moments, now in float64."""
    rng = np.random.default_rng(0)
    reward = rng.normal(0.5, 0.1, 300)
    yield np.stack([reward, rng.normal(600, 0.5, 300)], -1)
    seconds = np.where(np.arange(300) % 67 == 3, 1e6, rng.normal(600, 0.5, 300))
    yield np.stack([reward, seconds], -1)
    yield np.array([[0.5, 600.0]])
    yield np.full((300, 2), [0.7, 612.3])
    yield np.stack([reward, 1e-6 * rng.uniform(0.5, 1.5, 300)], -1)


def reference(x):
    """Posterior of the default prior in extended precision."""
    x = x.astype(np.longdouble)
    n, kappa = len(x), np.longdouble(1e-3)
    xbar = x.sum(0) / n
    scatter = (x - xbar).T @ (x - xbar)
    between = kappa * n / (kappa + n) * np.outer(xbar, xbar)
    return n * xbar / (kappa + n), 1e-3 * np.eye(2) + scatter + between


def niw():
    prior = conjugate.niw_prior()

    @jax.jit
    def stream(x):
        def step(carry, row):
            posterior, stats = carry
            return (
                conjugate.update(posterior, row[None]),
                conjugate.merge(stats, conjugate.moments(row[None])),
            ), None

        start = (prior, conjugate.empty_moments())
        (posterior, stats), _ = jax.lax.scan(step, start, x)
        return posterior, conjugate.posterior(prior, stats)

    for x in hard_data():
        mean, scale = (np.asarray(v, np.float64) for v in reference(x))
        for got in (conjugate.update(prior, jnp.asarray(x)), *stream(jnp.asarray(x))):
            assert got.scale.dtype == jnp.float64
            np.testing.assert_allclose(got.mean, mean, rtol=1e-10)
            np.testing.assert_allclose(got.scale, scale, rtol=1e-10)
            assert np.linalg.eigvalsh(got.scale).min() > 0


def optimum():
    rng = np.random.default_rng(1)
    for _ in range(20):
        reward, duration = rng.gamma(1.0, 1.0, (3, 4)), np.exp(rng.normal(size=(3, 4)))
        best = max(
            reward[range(3), list(u)].sum() / duration[range(3), list(u)].sum()
            for u in itertools.product(range(4), repeat=3)
        )
        got = dinkelbach.optimal_rate(jnp.asarray(reward), jnp.asarray(duration))
        np.testing.assert_allclose(got.rate, best, rtol=1e-13)


def boltzmann():
    """k exact NPG steps from zero are Boltzmann at the running average of the rates."""
    rng = np.random.default_rng(2)
    eta = 0.7
    for _ in range(3):
        reward, duration = rng.normal(size=(2, 5, 6))
        duration = jnp.asarray(np.exp(duration))
        reward = jnp.asarray(reward)
        rates = rng.uniform(0, 1, 40)
        logits = jnp.zeros((5, 6))
        for rate in rates:
            logits = updates.npg(logits, reward - rate * duration, step_size=eta)
        average = rates.mean()
        want = jax.nn.softmax(40 * eta * (reward - average * duration))
        np.testing.assert_allclose(jax.nn.softmax(logits), want, rtol=0, atol=1e-13)
    assert theory.boltzmann_error(seed=0, number=50) < 1e-13


def quantile():
    """The analytic quantile in float32 is the one in float64 to float32's digits."""
    rng = np.random.default_rng(3)
    for n in (2, 8, 128):
        for spread in (0.01, 0.5, 1.2):
            log_seconds = rng.normal(6, spread, n)
            seconds = np.exp(log_seconds)
            reward = 0.7 * seconds * (1 + 0.1 * rng.normal(size=n))
            got = []
            for dtype in (jnp.float64, jnp.float32):
                fit = conjugate.fit_slots(
                    conjugate.niw_prior(dtype=dtype),
                    jnp.asarray(reward, dtype),
                    jnp.asarray(seconds, dtype),
                    jnp.ones(n, bool),
                )
                value = ratio.ratio_quantile(fit.niw, fit.count)
                assert value.dtype == dtype
                got.append(float(value))
            np.testing.assert_allclose(got[1], got[0], rtol=1e-4)


if __name__ == "__main__":
    assert jax.config.jax_enable_x64, "run with JAX_ENABLE_X64=1"
    for name, check in [
        ("niw", niw),
        ("dinkelbach", optimum),
        ("boltzmann", boltzmann),
        ("quantile", quantile),
    ]:
        check()
        print(name)
