"""NIW statistics and posteriors against an independent float64 reference."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpg_jax import conjugate


def reference(prior, x):
    """Textbook posterior in float64, from the data as float32 stores it."""
    mean, kappa, nu, scale = (np.asarray(v, np.float64) for v in prior[:4])
    x = np.asarray(x, np.float64)
    n = len(x)
    if n == 0:
        return mean, kappa, nu, scale
    xbar = np.array([np.sum(column) / n for column in x.T])
    scatter = sum(np.outer(row - xbar, row - xbar) for row in x)
    gap = xbar - mean
    return (
        (kappa * mean + n * xbar) / (kappa + n),
        kappa + n,
        nu + n,
        scale + scatter + kappa * n / (kappa + n) * np.outer(gap, gap),
    )


def assert_close(got, want, rtol=1e-4):
    for name, g, w in zip(("mean", "kappa", "nu", "scale"), got, want, strict=False):
        np.testing.assert_allclose(
            np.asarray(g, np.float64), w, rtol=rtol, err_msg=name
        )


def assert_definite(scale):
    scale = np.asarray(scale, np.float64)
    np.testing.assert_array_equal(scale, np.swapaxes(scale, -1, -2))
    assert (np.linalg.eigvalsh(scale) > 0).all()


def hard(name, n=200):
    """Data that break raw second moments, in float32."""
    rng = np.random.default_rng(sum(map(ord, name)))
    reward = rng.normal(0.5, 0.1, n)
    if name == "tight":
        seconds = rng.normal(600, 0.5, n)
    elif name == "outlier":
        seconds = np.where(np.arange(n) % 67 == 3, 1e6, rng.normal(600, 0.5, n))
    elif name == "single":
        reward, seconds = reward[:1], np.array([600.0])
    elif name == "identical":
        reward, seconds = np.full(n, 0.7), np.full(n, 612.3)
    elif name == "tiny":
        seconds = 1e-6 * rng.uniform(0.5, 1.5, n)
    elif name == "collinear":
        seconds = 1e4 * reward
    elif name == "drift":
        seconds = np.linspace(1, 5000, n) + rng.normal(0, 0.1, n)
    elif name == "wide":
        reward, seconds = 1e5 * rng.normal(size=n), np.exp(rng.normal(0, 4, n))
    return np.stack([reward, seconds], axis=-1).astype(np.float32)


HARD = [
    "tight", "outlier", "single", "identical", "tiny", "collinear", "drift", "wide",
]  # fmt: skip


@jax.jit
def padded_update(prior, x, mask):
    return conjugate.update(prior, x, mask)


@jax.jit
def stream(prior, x, mask):
    """One observation at a time, as posteriors and as statistics."""

    def step(carry, row):
        niw, stats = carry
        v, m = row[0][None], row[1][None]
        niw = conjugate.update(niw, v, m)
        return (niw, conjugate.merge(stats, conjugate.moments(v, m))), None

    start = (prior, conjugate.empty_moments())
    (niw, stats), _ = jax.lax.scan(step, start, (x, mask))
    return niw, conjugate.posterior(prior, stats)


def pad(x, size=256):
    """Masked padding full of garbage."""
    full = np.full((size, 2), np.nan, np.float32)
    full[: len(x)] = x
    return jnp.asarray(full), jnp.arange(size) < len(x)


@pytest.mark.parametrize("name", HARD)
def test_batch_posterior_on_hard_data(name):
    x = hard(name)
    prior = conjugate.niw_prior()
    got = padded_update(prior, *pad(x))
    assert_close(got, reference(prior, x))
    assert_definite(got.scale)


@pytest.mark.parametrize("name", HARD)
def test_streamed_posterior_on_hard_data(name):
    x = hard(name)
    prior = conjugate.niw_prior()
    for got in stream(prior, *pad(x)):
        assert_close(got, reference(prior, x))
        assert_definite(got.scale)


def test_a_long_stream_keeps_a_weak_covariance():
    # 5,000 durations of 600 +- 0.5 s: without the mean's residual the covariance entry,
    # 74 times below the diagonals' geometric mean, is off by 1.5e-3.
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(0.5, 0.1, 5000), rng.normal(600, 0.5, 5000)], axis=-1)
    x = x.astype(np.float32)
    prior = conjugate.niw_prior()
    want = reference(prior, x)
    for got in stream(prior, jnp.asarray(x), jnp.ones(5000, bool)):
        assert_close(got, want)
    assert_close(conjugate.update(prior, jnp.asarray(x)), want, rtol=1e-5)


def test_an_informative_prior_in_three_dimensions():
    rng = np.random.default_rng(4)
    a = rng.normal(size=(3, 3))
    prior = conjugate.niw_prior(
        rng.normal(size=3), 2.5, 7.0, a @ a.T + np.eye(3), dim=3
    )
    x = (rng.normal(size=(40, 3)) @ a).astype(np.float32)
    got = conjugate.update(prior, jnp.asarray(x))
    assert_close(got, reference(prior, x), rtol=1e-4)


@pytest.mark.parametrize("splits", [(1, 7, 120), (64, 64, 72), (0, 10, 190)])
@pytest.mark.parametrize("name", ["tight", "outlier", "tiny", "drift"])
def test_merge_is_associative_and_order_free(name, splits):
    x = hard(name)
    cuts = np.cumsum((0, *splits))
    parts = []
    for a, b in zip(cuts, [*cuts[1:], len(x)], strict=True):
        parts.append(conjugate.moments(*pad(x[a:b])))
    merge = jax.jit(conjugate.merge)
    p, q, r, s = parts
    ways = [
        merge(merge(merge(p, q), r), s),
        merge(p, merge(q, merge(r, s))),
        merge(merge(p, q), merge(r, s)),
        merge(merge(s, q), merge(r, p)),
        merge(conjugate.empty_moments(), merge(merge(p, r), merge(s, q))),
    ]
    prior = conjugate.niw_prior()
    want = reference(prior, x)
    for way in ways:
        assert way.number == len(x)
        assert_close(conjugate.posterior(prior, way), want)


finite = st.floats(-1e4, 1e4, width=32)
pairs = st.lists(st.tuples(finite, finite), max_size=6)


@settings(max_examples=60, deadline=None)
@given(pairs, pairs, pairs)
def test_merge_property(a, b, c):
    stats = [
        conjugate.moments(*pad(np.reshape(np.array(v, np.float32), (-1, 2)), 8))
        for v in (a, b, c)
    ]
    left = conjugate.merge(conjugate.merge(stats[0], stats[1]), stats[2])
    right = conjugate.merge(stats[2], conjugate.merge(stats[1], stats[0]))
    x = np.reshape(np.array([*a, *b, *c], np.float64), (-1, 2))
    assert left.number == right.number == len(x)
    size = max(1.0, np.abs(x).max(initial=0))
    for got in (left, right):
        if len(x):
            np.testing.assert_allclose(got.mean, x.mean(0), atol=1e-6 * size)
            d = x - x.mean(0)
            tolerance = 1e-5 * max(1.0, (d**2).sum())
            np.testing.assert_allclose(got.scatter, d.T @ d, atol=tolerance)
        assert (np.diagonal(got.scatter) >= 0).all()


@jax.jit
def everything(prior, x, mask):
    """Statistics, statistics by segment, posterior, and a gradient through it."""
    stats = conjugate.moments(x, mask)
    cells = conjugate.segment_moments(x, jnp.zeros(len(x), jnp.int32), 2, mask)
    grad = jax.grad(lambda v: conjugate.update(prior, v, mask).scale.sum())(x)
    return stats, cells, conjugate.posterior(prior, stats), grad


BAD = [np.nan, np.inf, -np.inf, 1e20, 3e38]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("column", [0, 1])
def test_bad_rows_are_left_out_and_counted(value, column):
    x = hard("tight", 20)
    dirty = x.copy()
    dirty[[3, 11], column] = value
    mask = np.ones(20, bool)
    mask[11] = False  # nobody asked for this one
    clean = np.delete(x, [3, 11], axis=0)
    prior = conjugate.niw_prior()
    stats, cells, fitted, grad = everything(
        prior, jnp.asarray(dirty), jnp.asarray(mask)
    )
    assert stats.rejected == 1
    assert stats.number == 18
    assert_close(fitted, reference(prior, clean))
    assert cells.rejected == 1
    np.testing.assert_array_equal(cells.number, [18, 0])
    assert np.isfinite(grad).all()
    assert not grad[np.array([3, 11])].any()
    assert conjugate.merge(stats, stats).rejected == 2


def test_the_largest_accepted_values_do_not_overflow():
    limit = np.float32(conjugate.magnitude_limit(np.float32) * 0.999)
    x = jnp.array([[limit, -limit], [-limit, limit]] * 50)
    got = conjugate.update(conjugate.niw_prior(), x)
    assert np.isfinite(np.concatenate([v.ravel() for v in got])).all()


def test_no_data_leaves_the_prior():
    prior = conjugate.niw_prior([0.3, 2.0], 0.5, 6.0, [[2.0, 0.3], [0.3, 1.0]])
    got = padded_update(prior, *pad(np.zeros((0, 2))))
    for g, w in zip(got, prior, strict=True):
        np.testing.assert_array_equal(g, w)


def test_scale_stays_definite_when_rounding_would_break_it():
    # Correlation 1 to rounding and a prior far below the data's last digit.
    rng = np.random.default_rng(8)
    update = jax.jit(conjugate.update)
    for factor in (3.0, 1e3, 1e6, 1e-6):
        z = rng.normal(size=400) * 1e4
        x = np.stack([z, factor * z], axis=-1).astype(np.float32)
        niw = conjugate.niw_prior(scale=1e-6)
        for part in np.split(x, 8):
            niw = update(niw, jnp.asarray(part))
            assert_definite(niw.scale)
        assert_close(niw, reference(conjugate.niw_prior(scale=1e-6), x))


def test_segment_moments_equal_moments_per_segment():
    rng = np.random.default_rng(6)
    x = np.stack([rng.normal(size=64), rng.normal(600, 0.5, 64)], -1).astype(np.float32)
    segment = rng.integers(0, 5, 64)
    segment[[7, 9]] = [-1, 5]  # out of range: refused, not wrapped or dropped silently
    mask = rng.random(64) < 0.8
    mask[[7, 9]] = True
    got = jax.jit(conjugate.segment_moments, static_argnums=2)(
        jnp.asarray(x), jnp.asarray(segment), 5, jnp.asarray(mask)
    )
    assert got.rejected == 2
    for s in range(5):
        want = conjugate.moments(jnp.asarray(x), jnp.asarray(mask & (segment == s)))
        assert got.number[s] == want.number
        np.testing.assert_allclose(got.mean[s], want.mean, rtol=1e-6)
        np.testing.assert_allclose(got.scatter[s], want.scatter, rtol=2e-4, atol=1e-6)


def test_forgetting():
    niw = conjugate.update(conjugate.niw_prior(), jnp.asarray(hard("tight", 50)))
    got = conjugate.forget(niw, 0.3)
    np.testing.assert_allclose(got.kappa, 0.3 * niw.kappa)
    np.testing.assert_allclose(got.nu, 0.3 * niw.nu, rtol=1e-6)
    np.testing.assert_allclose(got.scale, 0.3 * niw.scale, rtol=1e-6)
    np.testing.assert_array_equal(got.mean, niw.mean)
    assert conjugate.forget(conjugate.niw_prior(), 0.3).nu == 4  # d + 2


def test_one_trace_serves_every_mask():
    chex.clear_trace_counter()
    f = jax.jit(chex.assert_max_traces(conjugate.update, n=1))
    for n in (0, 1, 5):
        f(conjugate.niw_prior(), *pad(hard("tight", n), 16))


@pytest.mark.parametrize(
    "arguments",
    [
        {"kappa": 0.0},
        {"kappa": np.inf},
        {"nu": 1.0},
        {"scale": -1.0},
        {"scale": [[1.0, 2.0], [2.0, 1.0]]},
        {"scale": [[1.0, 0.5], [0.0, 1.0]]},
        {"scale": np.eye(3)},
        {"mean": np.nan},
        {"scale": np.nan},
    ],
)
def test_a_bad_prior_is_refused(arguments):
    with pytest.raises(ValueError):
        conjugate.niw_prior(**arguments)
