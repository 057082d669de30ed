"""Checks that need float64; run by test_conjugate_x64.py with JAX_ENABLE_X64=1."""

import itertools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import llm_tiny

from bandit import theory
from rpg_jax import conjugate, dinkelbach, ratio, slots, updates
from rpg_jax.llm import lora
from rpg_jax.llm.checkpoint import fingerprint
from rpg_jax.llm.models import model_for


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
    def three_ways(x, mask):
        def step(carry, item):
            posterior, stats = carry
            row, m = item[0][None], item[1][None]
            return (
                conjugate.update(posterior, row, m),
                conjugate.merge(stats, conjugate.moments(row, m)),
            ), None

        start = (prior, conjugate.empty_moments())
        (posterior, stats), _ = jax.lax.scan(step, start, (x, mask))
        batch = conjugate.update(prior, x, mask)
        return batch, posterior, conjugate.posterior(prior, stats)

    for x in hard_data():
        padded = np.full((300, 2), np.nan)
        padded[: len(x)] = x
        mean, scale = (np.asarray(v, np.float64) for v in reference(x))
        for got in three_ways(jnp.asarray(padded), jnp.arange(300) < len(x)):
            assert got.scale.dtype == jnp.float64
            np.testing.assert_allclose(got.mean, mean, rtol=1e-10)
            np.testing.assert_allclose(got.scale, scale, rtol=1e-10)
            assert np.linalg.eigvalsh(got.scale).min() > 0


def optimum():
    rng = np.random.default_rng(1)
    solve = jax.jit(dinkelbach.optimal_rate)
    for _ in range(20):
        reward, duration = rng.gamma(1.0, 1.0, (3, 4)), np.exp(rng.normal(size=(3, 4)))
        best = max(
            reward[range(3), list(u)].sum() / duration[range(3), list(u)].sum()
            for u in itertools.product(range(4), repeat=3)
        )
        got = solve(jnp.asarray(reward), jnp.asarray(duration))
        np.testing.assert_allclose(got.rate, best, rtol=1e-13)


def boltzmann():
    """k exact NPG steps from zero are Boltzmann at the running average of the rates."""
    rng = np.random.default_rng(2)
    eta, steps = 0.7, 40

    @jax.jit
    def run(reward, duration, rates):
        def step(logits, rate):
            value = reward - rate * duration
            return updates.npg(logits, value, step_size=eta), None

        return jax.nn.softmax(jax.lax.scan(step, jnp.zeros_like(reward), rates)[0])

    for _ in range(20):
        reward, duration = rng.normal(size=(2, 5, 6))
        duration = np.exp(duration)
        rates = rng.uniform(0, 1, steps)
        got = run(*(jnp.asarray(v) for v in (reward, duration, rates)))
        want = np.exp(steps * eta * (reward - rates.mean() * duration))
        want /= want.sum(-1, keepdims=True)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)
    assert theory.boltzmann_error(seed=0, number=50) < 1e-13


def quantile():
    """The analytic quantile in float32 is the one in float64 to float32's digits."""
    rng = np.random.default_rng(3)

    @jax.jit
    def rate(reward, seconds, filled):
        prior = conjugate.niw_prior(dtype=reward.dtype)
        fit = slots.fit_slots(prior, reward, seconds, filled)
        return ratio.ratio_quantile(fit.niw, fit.number)

    for n in (2, 8, 128):
        for spread in (0.01, 0.5, 1.2):
            seconds = np.exp(rng.normal(6, spread, 128))
            reward = 0.7 * seconds * (1 + 0.1 * rng.normal(size=128))
            wide, narrow = (
                rate(
                    *(jnp.asarray(v, t) for v in (reward, seconds)), np.arange(128) < n
                )
                for t in (jnp.float64, jnp.float32)
            )
            assert wide.dtype == jnp.float64
            assert narrow.dtype == jnp.float32
            np.testing.assert_allclose(narrow, wide, rtol=1e-4)


def weights():
    """Language models keep their types, and their checksum is that of 32 bits."""
    config = llm_tiny.llama(layers=1)
    params = model_for(config).init(jax.random.key(0))
    adapters = lora.init(jax.random.key(1), params, rank=2)
    for leaf in jax.tree.leaves((params, adapters)):
        assert leaf.dtype in (jnp.float32, jnp.bfloat16), leaf.dtype
    wide = jax.tree.map(lambda x: x.astype(jnp.float64), params)
    changed = {**wide, "norm": wide["norm"].at[3].add(1e-12)}
    assert fingerprint(wide) != fingerprint(changed)
    assert fingerprint(params) == fingerprint(jax.tree.map(jnp.copy, params))


if __name__ == "__main__":
    assert jax.config.jax_enable_x64, "run with JAX_ENABLE_X64=1"
    for name, check in [
        ("niw", niw),
        ("dinkelbach", optimum),
        ("boltzmann", boltzmann),
        ("quantile", quantile),
        ("weights", weights),
    ]:
        check()
        print(name)
