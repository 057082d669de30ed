"""Where the analytic quantile holds: against 40,000 or more batches in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax import conjugate, quantiles, rates, ratio, slots
from rpg_jax.types import checked_batch

CASES = [(cv, corr) for cv in (0.3, 1.0, 3.0) for corr in (-0.8, 0.0, 0.8)]


def student(df, cv, corr, sd):
    """A NIW whose predictive has these degrees of freedom and shape; reward about 1."""
    kappa = 1e6
    shape = np.array([[cv * cv, corr * cv * sd], [corr * cv * sd, sd * sd]])
    return conjugate.NIW(
        mean=jnp.array([1.0, 0.5]),
        kappa=jnp.float32(kappa),
        nu=jnp.float32(df + 1),
        scale=jnp.asarray(shape * kappa * df / (kappa + 1), jnp.float32),
        residual=jnp.zeros(2),
    )


def reference(z, cv, corr, sd, level=0.95):
    """Quantile over all batches, and the standard error of one over 1,000."""
    y = corr * z[..., 0] + np.sqrt(1 - corr**2) * z[..., 1]
    seconds = np.exp(np.clip(sd * y, -600, 600)).mean(1)
    ratios = (1 + cv * z[..., 0]).mean(1) / seconds * np.exp(-0.5)
    low, value, high = np.quantile(ratios, [level - 0.01, level, level + 0.01])
    return value, np.sqrt(level * (1 - level) / 1000) * (high - low) / 0.02


def draws(n, df, seed=0):
    rng = np.random.default_rng(seed)
    size = (40_000 if n > 16 else 100_000, n)
    mix = np.sqrt(df / (2 * rng.standard_gamma(df / 2, size)))
    return rng.standard_normal((*size, 2)) * mix[..., None]


@pytest.mark.parametrize("n", [2, 4, 8, 16, 64])
def test_inside_its_range_the_analytic_quantile_is_a_thousand_batches_worth(n):
    df = n + 3.0
    z = draws(n, df)
    edge = quantiles.WIDTH_OF_TWO + quantiles.WIDTH_PER_DOUBLING * np.log2(n / 2)
    quantile = jax.jit(ratio.ratio_quantile)
    for share in (0.3, 0.99):
        for cv, corr in CASES:
            niw = student(df, cv, corr, share * edge)
            assert quantiles.in_analytic_range(niw, jnp.float32(n))
            value, se = reference(z, cv, corr, share * edge)
            error = abs(float(quantile(niw, jnp.float32(n))) - value)
            assert error < max(1.5 * se, 0.02 * abs(value)), (share, cv, corr)
    assert not quantiles.in_analytic_range(
        student(df, 1.0, 0.0, 1.01 * edge), jnp.float32(n)
    )


@pytest.mark.parametrize("n", [2, 16])
@pytest.mark.parametrize("sd", [1.5, 3.0])
def test_beyond_it_the_sampled_quantile_is_taken(n, sd):
    df = n + 3.0
    z = draws(n, df)
    auto = jax.jit(quantiles.ratio_quantile_auto)
    key = jax.random.key(2)
    for cv, corr in CASES[:6]:
        niw = student(df, cv, corr, sd)
        value, se = reference(z, cv, corr, sd)
        got = float(auto(key, niw, jnp.float32(n)))
        assert abs(got - value) < 6 * se
        wrong = float(ratio.ratio_quantile(niw, jnp.float32(n)))
        assert abs(wrong - value) > abs(got - value)


def fitted(reward, seconds):
    reward, seconds = np.asarray(reward), np.asarray(seconds)
    prior = conjugate.niw_prior()
    return slots.fit_slots(prior, reward, seconds, jnp.ones(reward.shape, bool))


def test_an_outlier_and_crashes_are_sampled():
    """A 1e6 s outlier beside 1 s; crashes of 0.1 s among runs of 30 s."""
    outlier = fitted([1.0, 1.0], [1.0, 1e6])
    rng = np.random.default_rng(0)
    crashes = np.arange(16) % 4 == 0
    mixed = fitted(np.where(crashes, 0.0, 1.0), np.where(crashes, 0.1, 30.0))
    for fit in (outlier, mixed):
        assert not quantiles.in_analytic_range(fit.niw, fit.number)
        t = ratio.predictive(fit.niw)
        n = int(fit.number)
        z = draws(n, float(t.df), seed=int(rng.integers(99)))
        pairs = z @ np.linalg.cholesky(np.asarray(t.shape, np.float64)).T
        ratios = (float(t.loc[0]) + pairs[..., 0].mean(1)) / np.exp(
            np.clip(float(t.loc[1]) + pairs[..., 1], -600, 600)
        ).mean(1)
        low, value, high = np.quantile(ratios, [0.93, 0.95, 0.97])
        got = quantiles.ratio_quantile_auto(jax.random.key(1), fit.niw, fit.number)
        assert low < got < high
        analytic = float(ratio.ratio_quantile(fit.niw, fit.number))
        assert abs(analytic / value - 1) > 0.2


def test_the_estimator_chooses_by_itself():
    steady = checked_batch(np.ones(8), np.linspace(1.0, 1.2, 8))
    wild = checked_batch(np.ones(8), np.logspace(-3, 5, 8))
    state = {}
    for method in quantiles.METHODS:
        estimator = rates.niw_slots(8, method=method)
        update = jax.jit(estimator.update)
        state[method] = [update(estimator.init(), b).rate for b in (steady, wild)]
    assert state["auto"][0] == state["analytic"][0]
    assert state["auto"][1] == state["sampled"][1]
    assert state["auto"][1] != state["analytic"][1]


def test_unknown_methods_are_refused_and_seconds_are_always_analytic():
    with pytest.raises(ValueError, match="method must be one of auto"):
        rates.niw_slots(8, method="delta")
    niw = conjugate.niw_prior([1.0, 2.0], scale=1e3)
    assert quantiles.in_analytic_range(niw, jnp.float32(2), log_duration=False)
