"""Max@k rewards against the integral, finite differences and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax import expected_best, max_at_k, max_at_k_rank


def _integral(value, sample, k, best):
    """The integral by steps of F, segment by segment, in float64."""
    sample = np.sort(np.asarray(sample, np.float64))
    out = []
    for v in np.asarray(value, np.float64):
        inner = sample[(sample > best) & (sample < v)]
        edges = np.concatenate([[best], inner, [max(best, v)]])
        middle = (edges[1:] + edges[:-1]) / 2
        share = (sample[None, :] <= middle[:, None]).mean(axis=1)
        out.append(np.sum(np.diff(edges) * share ** (max(k, 1) - 1)))
    return np.array(out)


def _problem(seed, size=40):
    rng = np.random.default_rng(seed)
    sample = np.where(rng.random(size) < 0.3, 0.0, rng.gamma(2, 0.2, size))
    return rng.choice(np.concatenate([sample, rng.gamma(2, 0.3, 8)]), 12), sample


@pytest.mark.parametrize("best", [0.0, 0.3, 9.0])
@pytest.mark.parametrize("k", [0.2, 1.0, 1.5, 4.0, 16.0, 300.0])
def test_it_is_the_integral(k, best):
    for seed in range(8):
        value, sample = _problem(seed)
        want = _integral(value, sample, k, best)
        got = max_at_k(value, sample, k=k, best=best)
        assert isinstance(got, np.ndarray)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-14)
        low = max_at_k(jnp.array(value), jnp.array(sample), k=k, best=best)
        assert low.dtype == jnp.float32
        np.testing.assert_allclose(low, want, rtol=1e-5 * max(k, 1), atol=1e-7)


def test_one_attempt_left_is_the_plain_reward():
    value, sample = _problem(0)
    np.testing.assert_allclose(max_at_k(value, sample, k=1), value, rtol=1e-14)
    np.testing.assert_array_equal(
        max_at_k(value, sample, k=0.3), max_at_k(value, sample, k=1)
    )
    above = np.maximum(value - 0.2, 0)
    np.testing.assert_allclose(
        max_at_k(value, sample, k=1, best=0.2), above, rtol=1e-12
    )


def _expected_best(theta, values, seconds, budget, best):
    """J in closed form for a categorical policy: k follows the mean seconds."""
    probs = np.exp(theta - theta.max())
    probs /= probs.sum()
    k = budget / (probs @ seconds)
    order = np.argsort(values)
    cdf = np.cumsum(probs[order])
    edges = np.maximum(values[order], best)
    return (
        best
        + np.maximum(edges[0] - best, 0)
        + np.sum(np.diff(edges) * (1 - cdf[:-1] ** k))
    )


@pytest.mark.parametrize("best", [0.0, 0.25])
def test_gradient_of_the_expected_best(best):
    """k E[grad log pi (w - rho delta)] with the exact rho is the gradient of J."""
    for seed in range(40):
        rng = np.random.default_rng([seed, 5])
        size = int(rng.integers(2, 9))
        values = np.where(rng.random(size) < 0.2, 0.0, rng.random(size))
        seconds = rng.lognormal(0, 1, size)
        # Shares of a whole number of draws: the sample is the distribution itself.
        counts = rng.integers(1, 30, size)
        probs = counts / counts.sum()
        theta = np.log(probs)
        mean = probs @ seconds
        budget = mean * rng.uniform(1, 30)
        k = budget / mean
        w = max_at_k(values, np.repeat(values, counts), k=k, best=best)
        order = np.argsort(values, kind="stable")
        cdf = np.minimum(np.cumsum(probs[order]), 1.0)[:-1]
        edges = np.maximum(values[order], best)
        rho = -np.sum(np.diff(edges) * cdf**k * np.log(cdf)) / mean
        signal = w - rho * seconds
        gradient = k * probs * (signal - probs @ signal)
        step = 1e-6
        wanted = [
            (
                _expected_best(theta + d, values, seconds, budget, best)
                - _expected_best(theta - d, values, seconds, budget, best)
            )
            / (2 * step)
            for d in step * np.eye(size)
        ]
        np.testing.assert_allclose(gradient, wanted, rtol=1e-6, atol=1e-9)


def test_a_large_sample_gives_the_exact_rewards():
    """The same w from draws of the policy as from its probabilities."""
    rng = np.random.default_rng(2)
    counts = np.array([5, 1, 3, 11])
    values = np.array([0.3, 0.9, 0.0, 0.5])
    sample = rng.permutation(np.repeat(values, counts))
    cdf = {v: counts[values <= v].sum() / 20 for v in values}
    k = 6.0
    want = [
        0.0,
        0.3 * cdf[0.0] ** 5,
        0.3 * cdf[0.0] ** 5 + 0.2 * cdf[0.3] ** 5,
        0.3 * cdf[0.0] ** 5 + 0.2 * cdf[0.3] ** 5 + 0.4 * cdf[0.5] ** 5,
    ]
    got = max_at_k(np.sort(values), sample, k=k)
    np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize("best", [0.0, 0.4])
@pytest.mark.parametrize("k", [1.0, 2.0, 7.5, 16.0])
def test_its_mean_is_what_one_more_draw_adds(k, best):
    """E[w] = M_k - M_(k-1), for a whole k and between."""
    for seed in range(5):
        _, sample = _problem(seed)
        gained = max_at_k(sample, sample, k=k, best=best).mean()
        more = expected_best(sample, k=k, best=best)
        less = expected_best(sample, k=k - 1, best=best)
        np.testing.assert_allclose(gained, more - less, rtol=1e-10, atol=1e-13)


def test_the_expected_best_is_that_of_draws():
    _, sample = _problem(1)
    rng = np.random.default_rng(0)
    drawn = rng.choice(sample, (200_000, 5)).max(axis=1)
    np.testing.assert_allclose(expected_best(sample, k=5), drawn.mean(), rtol=5e-3)
    assert expected_best(sample, k=0, best=0.7) == 0.7
    low = expected_best(jnp.array(sample), k=5)
    np.testing.assert_allclose(low, expected_best(sample, k=5), rtol=1e-5)


@pytest.mark.parametrize("k", [1.0, 3.0, 16.0])
def test_degenerate_batches(k):
    zeros = np.zeros(6)
    assert max_at_k(zeros, zeros, k=k).tolist() == [0.0] * 6  # all failed
    one = np.array([0.0, 0.0, 0.8])
    want = [0.0, 0.0, 0.8 * (2 / 3) ** (k - 1)]  # one valid
    np.testing.assert_allclose(max_at_k(one, one, k=k), want, rtol=1e-14)
    same = np.full(5, 0.6)  # ties: nobody adds anything to the others
    np.testing.assert_allclose(
        max_at_k(same, same, k=k), same if k == 1 else zeros[:5], atol=0
    )
    np.testing.assert_allclose(max_at_k(np.array([0.9]), same, k=k)[0] > 0.29, True)


def test_masked_rows_count_for_nothing():
    value, sample = _problem(3)
    keep = np.arange(len(sample)) % 3 != 0
    dirty = np.where(keep, sample, np.nan)
    for form in (max_at_k, max_at_k_rank):
        want = form(value, sample[keep], k=5.0)
        np.testing.assert_allclose(form(value, dirty, k=5.0, mask=keep), want)
        low = form(jnp.array(value), jnp.array(dirty), k=5.0, mask=jnp.array(keep))
        np.testing.assert_allclose(low, want, rtol=1e-5, atol=1e-7)
    want = expected_best(sample[keep], k=5)
    np.testing.assert_allclose(expected_best(dirty, k=5, mask=keep), want, rtol=1e-14)


def test_rows_can_have_a_best_and_a_k_of_their_own():
    value, sample = _problem(4)
    best = np.linspace(0, 0.5, len(value))
    k = np.linspace(1, 9, len(value))
    for form in (max_at_k, max_at_k_rank):
        got = form(value, sample, k=k, best=best)
        for i in range(len(value)):
            alone = form(value[i : i + 1], sample, k=k[i], best=best[i])
            np.testing.assert_allclose(got[i], alone[0], rtol=1e-14)


def test_under_jit_and_vmap():
    values, samples = (np.stack(x) for x in zip(*map(_problem, range(4)), strict=True))
    for form in (max_at_k, max_at_k_rank):
        fast = jax.jit(jax.vmap(lambda v, s, k, f=form: f(v, s, k=k)))
        got = fast(values, samples, jnp.array([1.0, 2.0, 8.0, 30.0]))
        for row, k in enumerate((1.0, 2.0, 8.0, 30.0)):
            want = form(values[row], samples[row], k=k)
            np.testing.assert_allclose(got[row], want, rtol=2e-4, atol=1e-6)


def test_float32_keeps_small_differences_of_large_values():
    """Values near 1e6 that differ by 1: their w differ by no more and no less."""
    sample = 1e6 + np.arange(64.0)
    value = 1e6 + np.arange(0, 64, 7.0)
    want = max_at_k(value, sample, k=8, best=1e6)
    got = max_at_k(jnp.array(value), jnp.array(sample), k=8, best=1e6)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("best", [None, 0.0, 0.3])
def test_ranks_are_blind_to_the_scale(best):
    value, sample = _problem(6)
    maps = (lambda x: x**3 * 50, lambda x: np.log1p(x) / 9, lambda x: np.exp(3 * x))
    for k in (1.0, 4.0, 16.0):
        want = max_at_k_rank(value, sample, k=k, best=best)
        for scale in maps:
            b = None if best is None else float(scale(np.float64(best)))
            got = max_at_k_rank(scale(value), scale(sample), k=k, best=b)
            np.testing.assert_array_equal(got, want)
        share = (sample[None, :] <= value[:, None]).mean(axis=1)
        if best is None:
            np.testing.assert_allclose(want, share**k / k, rtol=1e-14)
    assert (max_at_k_rank(np.zeros(3), sample, k=4.0) == 0).all()


def test_ranks_are_the_integral_of_uniform_values():
    """Where values are their own quantiles the two forms agree."""
    sample = np.arange(1, 2001) / 2000
    value = np.array([0.1, 0.5, 0.95, 1.0])
    got = max_at_k_rank(value, sample, k=5, best=None)
    np.testing.assert_allclose(got, max_at_k(value, sample, k=5), rtol=2e-2, atol=1e-5)


@pytest.mark.parametrize("form", [max_at_k, max_at_k_rank])
def test_what_is_not_finite_is_refused(form):
    value, sample = _problem(7)
    for bad in (np.nan, np.inf, -np.inf):
        spoilt, dirty = value.copy(), sample.copy()
        spoilt[2], dirty[5] = bad, bad
        with pytest.raises(ValueError, match="value is not finite in rows 2"):
            form(spoilt, sample, k=4)
        with pytest.raises(ValueError, match="sample is not finite in rows 5"):
            form(jnp.array(value), jnp.array(dirty), k=4)
        with pytest.raises(ValueError, match="k is not finite"):
            form(value, sample, k=bad)
        with pytest.raises(ValueError, match="best is not finite"):
            form(value, sample, k=4, best=bad)
        # Nothing can be raised under a trace: it must not pass for a number.
        traced = jax.jit(lambda v, s, f=form: f(v, s, k=4))
        assert np.isnan(traced(spoilt, sample)[2])
        assert np.isfinite(np.delete(traced(spoilt, sample), 2)).all()
        assert np.isnan(traced(value, dirty)).all()
        traced = jax.jit(lambda v, s, k, f=form: f(v, s, k=k))
        assert np.isnan(traced(value, sample, jnp.float32(bad)))[3] or bad == -np.inf
    with pytest.raises(ValueError, match="no row that counts"):
        form(value, sample[:0], k=4)
    with pytest.raises(ValueError, match="no row that counts"):
        form(value, sample, k=4, mask=np.zeros(len(sample), bool))
    with pytest.raises(ValueError, match="one-dimensional"):
        form(value[:, None], sample, k=4)
    with pytest.raises(ValueError, match="mask has shape"):
        form(value, sample, k=4, mask=np.ones(3, bool))
