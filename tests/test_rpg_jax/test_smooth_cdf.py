"""Smooth distributions against SciPy's, and max@k under them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from rpg_jax import kernel_cdf, max_at_k, max_at_k_of, pareto_tail_cdf


@pytest.mark.parametrize("best", [0.0, 0.5])
@pytest.mark.parametrize("k", [0.5, 1.0, 4.0, 16.0])
def test_it_is_the_integral(k, best):
    law = scipy.stats.gamma(2.0, scale=0.3)

    def cdf(t):
        return jax.scipy.stats.gamma.cdf(t / 0.3, 2.0)

    value = np.array([0.0, 0.3, 0.7, 2.5])
    got = max_at_k_of(jnp.array(value), cdf, k=k, best=best)
    for v, w in zip(value, got, strict=True):
        top = max(v, best)
        want, _ = scipy.integrate.quad(
            lambda t: law.cdf(t) ** (max(k, 1) - 1), best, top
        )
        np.testing.assert_allclose(w, want, rtol=1e-4, atol=1e-6)


def test_a_narrow_kernel_is_the_empirical_distribution():
    rng = np.random.default_rng(0)
    sample = np.where(rng.random(40) < 0.3, 0.0, rng.gamma(2, 0.2, 40))
    value = rng.gamma(2, 0.2, 12)
    exact = max_at_k(value, sample, k=4)
    cdf = kernel_cdf(jnp.array(sample), bandwidth=2e-3)
    got = max_at_k_of(jnp.array(value), cdf, k=4, nodes=4096)
    np.testing.assert_allclose(got, exact, rtol=2e-2, atol=2e-3)


def test_the_kernels_distribution_and_bandwidth():
    rng = np.random.default_rng(1)
    sample = rng.standard_normal(200)
    at = np.linspace(-3, 3, 21)
    iqr = np.subtract(*np.quantile(sample, [0.75, 0.25]))
    h = 0.9 * min(sample.std(), iqr / 1.34) * 200**-0.2
    want = scipy.stats.norm.cdf((at[:, None] - sample) / h).mean(axis=1)
    got = kernel_cdf(jnp.array(sample))(jnp.array(at))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.25])
def test_the_tail_is_that_of_its_law(shape):
    """Fitted to even quantiles, those far in the tail are the law's."""
    law = scipy.stats.genpareto(shape, scale=0.5)
    sample = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    cdf = pareto_tail_cdf(jnp.array(sample), tail=0.1)
    for level in (0.9, 0.99, 0.999):
        got = cdf(jnp.array([law.ppf(level)]))[0]
        assert (1 - got) / (1 - level) == pytest.approx(1, abs=0.1)
    at = np.sort(np.random.default_rng(3).choice(sample, 50))
    got = np.asarray(cdf(jnp.array(at)))
    assert (np.diff(got) >= -1e-6).all()
    below = at < np.quantile(sample, 0.89)
    share = (sample[None, :] <= at[:, None]).mean(axis=1)
    np.testing.assert_allclose(got[below], share[below], atol=1e-4)


def test_a_tail_has_mass_above_the_largest_value():
    """So the best of a sample is not taken for the best that there can be."""
    sample = jnp.array(np.random.default_rng(4).gamma(2, 0.2, 40))
    top = jnp.max(sample) * 1.1
    cdf = pareto_tail_cdf(sample)
    assert cdf(top[None])[0] < 1
    both = jnp.stack([jnp.max(sample), top])
    low, high = max_at_k_of(both, cdf, k=16.0)
    # The empirical distribution would give all of what is above its largest value.
    assert 0 < high - low < 0.9 * (top - jnp.max(sample))
    low, high = max_at_k(both, sample, k=16.0)
    np.testing.assert_allclose(high - low, top - jnp.max(sample), rtol=1e-4)


def test_ties_and_failures_in_the_tail():
    same = jnp.full(10, 0.4)
    got = pareto_tail_cdf(same)(jnp.array([0.3, 0.4, 0.5]))
    np.testing.assert_array_equal(got, [0.0, 1.0, 1.0])
    zeros = jnp.zeros(10)
    assert max_at_k_of(zeros, pareto_tail_cdf(zeros), k=8.0).tolist() == [0.0] * 10
    one = jnp.zeros(10).at[3].set(0.7)
    got = max_at_k_of(one, pareto_tail_cdf(one), k=8.0)
    assert np.isfinite(got).all()
    assert got[3] == jnp.max(got) > 0


@pytest.mark.parametrize("fit", [kernel_cdf, pareto_tail_cdf])
def test_under_jit_and_vmap(fit):
    samples = jnp.array(np.random.default_rng(5).gamma(2, 0.2, (3, 30)))

    def w(sample, k):
        return max_at_k_of(sample[:8], fit(sample), k=k)

    got = jax.jit(jax.vmap(w))(samples, jnp.array([1.0, 4.0, 16.0]))
    for row, k in enumerate((1.0, 4.0, 16.0)):
        want = w(samples[row], k)
        np.testing.assert_allclose(got[row], want, rtol=1e-4, atol=1e-6)
    bad = samples.at[0, 20].set(jnp.nan)
    assert not np.isfinite(jax.jit(lambda s: w(s, 4.0))(bad[0])).any()


def test_what_is_not_finite_or_out_of_range_is_refused():
    sample = jnp.arange(10.0)
    with pytest.raises(ValueError, match="sample must be finite"):
        kernel_cdf(sample.at[2].set(jnp.nan))
    with pytest.raises(ValueError, match="sample must be finite"):
        pareto_tail_cdf(sample.at[2].set(jnp.inf))
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        kernel_cdf(jnp.ones(5))
    with pytest.raises(ValueError, match="no row"):
        kernel_cdf(jnp.ones(0))
    with pytest.raises(ValueError, match="tail must be"):
        pareto_tail_cdf(sample, tail=1.0)
    with pytest.raises(ValueError, match="needs 2"):
        pareto_tail_cdf(sample, tail=0.1)
    cdf = kernel_cdf(sample)
    for value, k in ((jnp.array([jnp.nan]), 4.0), (sample, float("inf"))):
        with pytest.raises(ValueError, match="must be finite"):
            max_at_k_of(value, cdf, k=k)
    with pytest.raises(ValueError, match="even"):
        max_at_k_of(sample, cdf, k=4.0, nodes=7)
