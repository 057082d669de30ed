"""The predictive quantile of the ratio of means: analytic, sampled and by NumPy.

``data/recorded_slots.npz`` holds slots (reward sums, seconds; 0 s: empty) and the
carried posterior at 30 fits of NPG-NIW runs on E1-E4, K in {5, 10, 30}, age in
{60, ..., 8000}.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from repo_paths import DATA
from scipy import stats

from rpg_jax import conjugate, ratio, slots

BATCHES = 20_000


@pytest.fixture(scope="module")
def fits():
    """Slot fits of the recorded slots, as one batch."""
    with np.load(DATA / "recorded_slots.npz") as data:
        stored = {k: jnp.asarray(v) for k, v in data.items()}
    carried = conjugate.NIW(
        mean=stored["mean"],
        kappa=stored["kappa"],
        nu=stored["nu"],
        scale=stored["scale"],
        residual=jnp.zeros_like(stored["mean"]),
    )
    return slots.fit_slots(
        carried, stored["reward"], stored["duration"], stored["duration"] > 0
    )


def simulate(mean, shape, df, n, seed, level=0.95, batches=BATCHES):
    """Quantile of simulated ratios; standard errors: of it, and of 1,000 batches."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(np.asarray(shape, np.float64))
    z = rng.standard_normal((batches, n, 2), dtype=np.float32)
    mix = rng.standard_gamma(df / 2, (batches, n), dtype=np.float32) / (df / 2)
    z /= np.sqrt(mix)[..., None]
    reward = mean[0] + root[0, 0] * z[..., 0]
    log_seconds = root[1, 0] * z[..., 0] + root[1, 1] * z[..., 1]
    ratios = reward.mean(1) / np.exp(log_seconds.astype(np.float64)).mean(1)
    ratios *= np.exp(-mean[1])
    step = 0.01
    low, value, high = np.quantile(ratios, [level - step, level, level + step])
    # sqrt(p (1 - p) / n) / density
    unit = np.sqrt(level * (1 - level)) * (high - low) / (2 * step)
    return value, unit / np.sqrt(batches), unit / np.sqrt(1000)


@pytest.fixture(scope="module")
def simulated(fits):
    t = ratio.predictive(fits.niw)
    return np.array(
        [
            simulate(
                np.asarray(t.loc[i], np.float64),
                t.shape[i],
                float(t.df[i]),
                int(fits.number[i]),
                seed=i,
                batches=min(BATCHES * 128 // int(fits.number[i]), 200_000),
            )
            for i in range(len(fits.number))
        ]
    )


def test_recorded_slots_cover_small_and_full_fits(fits):
    assert len(fits.number) == 30
    assert fits.number.min() <= 3
    assert (fits.number == 128).sum() >= 5
    df = ratio.predictive(fits.niw).df
    assert df.min() < 7
    assert df.max() > 100
    assert not fits.rejected.any()


def test_analytic_quantile_is_within_monte_carlo_error(fits, simulated):
    # The unit is the standard error of the paper's 1,000 batches. The reference has its
    # own, 4.5 to 14 times smaller.
    got = np.asarray(ratio.ratio_quantile(fits.niw, fits.number), np.float64)
    value, own, unit = simulated.T
    error = np.maximum(np.abs(got - value) - 5 * own, 0) / unit
    count = np.asarray(fits.number)
    assert (error[count >= 4] < 0.35).all()
    assert (error < 5).all()  # n = 2 and 3: within 3% of the rate
    np.testing.assert_allclose(got, value, rtol=0.05)


def test_sampled_quantile_agrees_with_numpy(fits, simulated):
    # One draw of 1,000 batches per fit, at most 6 standard errors away.
    keys = jax.random.split(jax.random.key(5), len(fits.number))
    got = jax.jit(jax.vmap(ratio.ratio_quantile_sampled))(keys, fits.niw, fits.number)
    value, own, unit = simulated.T
    z = (np.asarray(got) - value) / np.hypot(own, unit)
    assert (np.abs(z) < 6).all()
    # Together they would show a bias that each of them hides.
    assert abs(z.mean()) < 5 / np.sqrt(len(z))
    assert 0.5 < z.std() < 1.6


@pytest.mark.parametrize("level", [0.5, 0.8, 0.99])
def test_other_levels(fits, level):
    for i in np.flatnonzero(np.asarray(fits.number) >= 16)[::4]:
        niw = jax.tree.map(lambda v, i=i: v[i], fits.niw)
        t = ratio.predictive(niw)
        value, own, unit = simulate(
            np.asarray(t.loc, np.float64),
            t.shape,
            float(t.df),
            int(fits.number[i]),
            seed=100 + int(i),
            level=level,
            batches=BATCHES,
        )
        got = ratio.ratio_quantile(niw, fits.number[i], level=level)
        assert abs(float(got) - value) < 0.5 * unit + 5 * own


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("correlation", [-0.8, 0.0, 0.95])
@pytest.mark.parametrize(("n", "df"), [(16, 19.0), (128, 131.0), (128, 183.0)])
def test_analytic_quantile_on_a_grid(spread, correlation, n, df):
    scale = np.array([0.4, spread])
    shape = np.outer(scale, scale) * [[1, correlation], [correlation, 1]]
    value, own, unit = simulate(np.array([1.0, 0.7]), shape, df, n, 7, batches=10_000)
    got = ratio.ratio_quantile(from_student(df, [1.0, 0.7], shape), jnp.float32(n))
    assert abs(float(got) - value) < 0.5 * unit + 5 * own


def from_student(df, mean, shape):
    """The posterior whose predictive is this Student-t (kappa large)."""
    kappa = 1e6
    factor = df * kappa / (kappa + 1)
    return conjugate.NIW(
        mean=jnp.asarray(mean, jnp.float32),
        kappa=jnp.float32(kappa),
        nu=jnp.float32(df + 1),
        scale=jnp.asarray(np.asarray(shape) * factor, jnp.float32),
        residual=jnp.zeros(2),
    )


def test_quantile_scales_with_the_units():
    # Reward in thousandths and seconds in hours: the same rate in other units.
    shape = np.array([[0.09, 0.05], [0.05, 0.25]])
    base = ratio.ratio_quantile(from_student(30.0, [1.0, 0.0], shape), jnp.float32(32))
    for unit, seconds in [(1e3, 3600.0), (1e-3, 1e-6), (1.0, 1e6)]:
        turn = np.diag([unit, 1.0])
        niw = from_student(30.0, [unit, np.log(seconds)], turn @ shape @ turn)
        got = ratio.ratio_quantile(niw, jnp.float32(32))
        np.testing.assert_allclose(got, base * unit / seconds, rtol=1e-4)


def test_a_certain_predictive_has_its_ratio_for_every_quantile():
    niw = from_student(183.0, [0.6, np.log(2.0)], 1e-12 * np.eye(2))
    for log_duration, want in ((True, 0.3), (False, 0.6 / np.log(2.0))):
        got = ratio.ratio_quantile(niw, jnp.float32(128), log_duration=log_duration)
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_quantile_on_the_scale_of_seconds():
    shape = np.array([[0.09, 0.05], [0.05, 0.25]])
    niw = from_student(40.0, [1.0, 5.0], shape)
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(shape)
    z = rng.standard_normal((40_000, 32, 2)) @ root.T
    z /= np.sqrt(rng.standard_gamma(20.0, (40_000, 32)) / 20.0)[..., None]
    ratios = (1 + z[..., 0].mean(1)) / (5 + z[..., 1].mean(1))
    value = np.quantile(ratios, 0.95)
    got = ratio.ratio_quantile(niw, jnp.float32(32), log_duration=False)
    np.testing.assert_allclose(got, value, rtol=2e-3)
    sampled = ratio.ratio_quantile_sampled(
        jax.random.key(1), niw, jnp.int32(32), max_count=32, log_duration=False
    )
    np.testing.assert_allclose(sampled, value, rtol=2e-2)


def test_student_value_of_a_normal_score():
    # The closed form behind the nodes against SciPy, through the cut moments' identity:
    # with no correlation and n = 1 the variance of r is that of a cut Student-t.
    for df in (5.0, 8.0, 30.0, 180.0):
        m = ratio._cut_moments(*(jnp.float32(v) for v in (df, 64.0, 1e-12, 0, 0.25)))
        top = stats.t.isf(ratio.CUT / 64, df)
        x = np.linspace(stats.t.ppf(stats.norm.sf(ratio.BOTTOM), df), top, 200_001)
        w = stats.t.pdf(x, df)
        d = np.exp(x / 2)
        mean = np.average(d, weights=w)
        np.testing.assert_allclose(m.d, mean, rtol=0.01)
        for power, got in ((2, m.dd), (3, m.ddd)):
            want = np.average((d - mean) ** power, weights=w)
            np.testing.assert_allclose(got, want, rtol=0.04 * power)


def test_gradients_are_finite_and_right(fits):
    def mean_rate(niw):
        return ratio.ratio_quantile(niw, fits.number).sum()

    grads = jax.grad(mean_rate)(fits.niw)
    for g in jax.tree.leaves(grads):
        assert np.isfinite(g).all()
    # d q / d log-duration location = -q, exactly: the ratio scales with exp(-m).
    q = ratio.ratio_quantile(fits.niw, fits.number)
    np.testing.assert_allclose(grads.mean[:, 1], -q, rtol=1e-4)


@pytest.mark.parametrize("log_duration", [True, False])
def test_extreme_posteriors_give_finite_rates(log_duration):
    niw = conjugate.niw_prior()
    for reward, seconds in [
        ([0.0, 0.0], [1e-6, 1e6]),
        ([1e6, -1e6], [1e-6, 1e-6]),
        ([1.0, 1.0], [1.0, 1.0]),
        ([1e-20, 1e12], [600.0, 600.5]),
    ]:
        fit = slots.fit_slots(
            niw,
            jnp.array(reward),
            jnp.array(seconds),
            jnp.ones(2, bool),
            log_duration=log_duration,
        )
        got = ratio.slot_rate(fit.niw, fit.number, log_duration=log_duration)
        assert np.isfinite(got)
        assert got >= 0


def test_slot_rate_is_floored_and_zero_before_a_fit():
    shape = 1e-4 * np.eye(2)
    assert ratio.slot_rate(from_student(9.0, [-1.0, 0.0], shape), jnp.float32(9)) == 0
    assert ratio.slot_rate(conjugate.niw_prior(), jnp.float32(1)) == 0


def test_a_level_below_the_median_is_refused():
    with pytest.raises(ValueError, match=r"level must be in \[0.5, 1\)"):
        ratio.ratio_quantile(conjugate.niw_prior(), jnp.float32(2), level=0.05)


@pytest.mark.parametrize("log_duration", [True, False])
@pytest.mark.parametrize("nu", [1.1, 2.0, 2.4, 2.5, 3.0])
def test_few_degrees_of_freedom_give_a_finite_quantile(nu, log_duration):
    niw = conjugate.niw_prior([1.0, 0.5], kappa=2.0, nu=nu, scale=0.1)
    for n in (1, 8, 128):
        got = ratio.ratio_quantile(niw, jnp.float32(n), log_duration=log_duration)
        assert np.isfinite(got)


def test_a_sampled_quantile_refuses_what_it_cannot_draw():
    key, niw = jax.random.key(0), conjugate.niw_prior()
    for count in (500, np.int64(129), jnp.int32(129)):
        with pytest.raises(ValueError, match="above max_count=128"):
            ratio.ratio_quantile_sampled(key, niw, count)
    for level in (0.0, 1.0, 95.0, float("nan")):
        with pytest.raises(ValueError, match=r"level must be in \(0, 1\)"):
            ratio.ratio_quantile_sampled(key, niw, 8, level=level)


def test_predictive_moments_by_simulation_and_at_their_limit():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(6, 5e-3, 30), rng.normal(6, 5e-3, 30)], -1)
    niw = conjugate.update(conjugate.niw_prior(nu=20.0), jnp.asarray(x))
    mean, cov = ratio.predictive_moments(niw)
    draws = ratio.sample_predictive(jax.random.key(3), niw, (200_000,))
    t = np.asarray(draws, np.float64)
    se = np.sqrt(np.diagonal(cov) / len(t))
    assert (np.abs(t.mean(0) - mean) < 6 * se).all()
    # Relative error of a variance estimate with kurtosis 3 + 6 / (df - 4).
    df = float(ratio.predictive(niw).df)
    band = 6 * np.sqrt((2 + 6 / (df - 4)) / len(t))
    root = np.sqrt(np.outer(np.diagonal(cov), np.diagonal(cov)))
    assert (np.abs(np.cov(t.T) - cov) < band * root).all()
    assert np.isinf(ratio.predictive_moments(conjugate.niw_prior())[1]).all()
