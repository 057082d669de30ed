"""Rate estimators: closed forms, convergence, and what bad rows do to them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rates_help import NAMES, WORLD, A, B, Net, X, compiled, draw, neural

from rpg_jax import dinkelbach, rates
from rpg_jax.types import Batch, checked_batch


@pytest.mark.parametrize("name", NAMES)
def test_bad_rows_are_counted_and_change_nothing(name):
    estimator, update, rate, traces = compiled(name)
    clean = draw(WORLD, 1)
    reward, duration = (
        np.asarray(clean.reward).copy(),
        np.asarray(clean.duration).copy(),
    )
    context = np.asarray(clean.context).copy()
    reward[[0, 1, 2]] = np.nan, np.inf, -1e30
    duration[[3, 4, 5, 6]] = 0, -1, np.nan, np.inf
    bad = np.arange(7)
    action = np.asarray(clean.action).copy()
    if name in ("niw", "niw_log", "niw_quantile", "niw_slots_context"):
        context[[7, 8]] = -1, X
        bad = np.arange(9)
    if name in ("niw", "niw_log", "niw_quantile", "neural"):
        action[[9, 10]] = -1, A
        bad = np.append(bad, [9, 10])
    reward[20] = duration[20] = np.nan  # masked out below: nobody asked for it
    mask = np.ones(B, bool)
    mask[20] = False
    dirty = Batch(
        context=jnp.asarray(context),
        action=jnp.asarray(action),
        reward=jnp.asarray(reward),
        duration=jnp.asarray(duration),
        mask=jnp.asarray(mask),
    )
    keep = mask.copy()
    keep[bad] = False
    masked = clean._replace(mask=jnp.asarray(keep))
    got, want = update(estimator.init(), dirty), update(estimator.init(), masked)
    assert got.rejected == len(bad)
    assert want.rejected == 0
    got, want = (s._replace(rejected=jnp.int32(0)) for s in (got, want))
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.isfinite(g).all()
        np.testing.assert_array_equal(g, w)
    assert np.isfinite(rate(got, 0.3))
    assert len(traces) == 1


@pytest.mark.parametrize("name", NAMES)
def test_no_data_means_rate_zero_and_an_unchanged_state(name):
    estimator, update, rate, _ = compiled(name)
    state = estimator.init()
    assert rate(state, 0.0) == 0
    empty = draw(WORLD, 2)._replace(mask=jnp.zeros(B, bool))
    after = update(update(state, draw(WORLD, 3)), empty)
    before = update(state, draw(WORLD, 3))
    if name.startswith("niw_slots"):  # decisions still elapse
        after = after._replace(step=before.step)
    for g, w in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("name", ["niw", "niw_slots", "robbins_monro", "neural"])
def test_vmap_over_trials(name):
    estimator, update, rate, _ = compiled(name)
    batches = [draw(WORLD, s) for s in (4, 5)]
    stacked = jax.tree.map(lambda *v: jnp.stack(v), *batches)
    start = jax.tree.map(lambda v: jnp.stack([v, v]), estimator.init())
    together = jax.jit(jax.vmap(estimator.update))(start, stacked)
    got = jax.jit(jax.vmap(estimator.rate, (0, None)))(together, 0.2)
    want = [rate(update(estimator.init(), b), 0.2) for b in batches]
    np.testing.assert_allclose(got, jnp.stack(want), rtol=2e-4)


@pytest.mark.parametrize(
    "step", [0.2, optax.exponential_decay(0.5, 20, 0.5, end_value=0.01)]
)
def test_robbins_monro_finds_the_ratio_of_means(step):
    greedy = np.array([0, 1, 2])
    estimator = rates.robbins_monro(step)
    update = jax.jit(estimator.update)
    state = estimator.init()
    for s in range(150):
        state = update(state, draw(WORLD, s, greedy=greedy))
    reward, duration = (v[range(X), greedy] for v in WORLD)
    # E r / E delta, not E (r / delta).
    want = reward.sum() / (duration.sum() * np.exp(0.1**2 / 2))
    np.testing.assert_allclose(estimator.rate(state, 0.0), want, rtol=0.06)


def test_robbins_monro_survives_an_outlier():
    # The explicit rule would throw the rate to -a * rho * 1e6 here.
    estimator = rates.robbins_monro(0.5)
    state = estimator.init()
    update = jax.jit(estimator.update)
    for seconds in (1.0, 1.0, 1e6, 1.0):
        state = update(state, checked_batch([1.0], [seconds]))
        assert 0 <= estimator.rate(state, 0.0) <= 1


def test_empirical_is_the_ratio_of_sums_on_a_long_stream():
    rng = np.random.default_rng(9)
    r, d = rng.normal(1, 0.2, (200, B)), rng.normal(600, 0.5, (200, B))
    estimator, update, rate, _ = compiled("empirical")
    state = estimator.init()
    for row in range(200):
        state = update(state, checked_batch(r[row], d[row]))
    np.testing.assert_allclose(rate(state, 0.0), r.sum() / d.sum(), rtol=1e-6)


def test_neural_learns_the_table():
    estimator = neural(num_steps=60)
    update = jax.jit(estimator.update)
    state = estimator.init()
    for s in range(12):
        state = update(state, draw(WORLD, s, size=256))
    assert state.skipped == 0
    best = dinkelbach.optimal_rate(*(jnp.asarray(v, jnp.float32) for v in WORLD)).rate
    got = rates.fixed_point(estimator, state, 0.0)
    np.testing.assert_allclose(got, best, rtol=0.08)


def test_neural_skips_steps_that_are_not_finite():
    net = Net()
    params = net.init(jax.random.key(1), jnp.arange(X))
    estimator = rates.neural(
        net.apply, params, optax.sgd(1e30), num_steps=4, contexts=jnp.arange(X)
    )
    state = jax.jit(estimator.update)(estimator.init(), draw(WORLD, 1))
    assert state.skipped > 0
    for leaf in jax.tree.leaves(state):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: rates.niw(0, 3), "contexts and arms"),
        (lambda: rates.niw(2, 3, forgetting=0.0), "forgetting"),
        (lambda: rates.niw(2, 3, quantile=1.0), "quantile"),
        (lambda: rates.niw_slots(1), "two slots"),
        (lambda: rates.niw_slots(4, age=-1), "age"),
        (lambda: rates.niw_slots(4, quantile=0.0), "quantile"),
        (lambda: neural(num_steps=0), "num_steps"),
    ],
)
def test_bad_settings_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("reward", "duration", "message"),
    [
        ([1.0, np.nan], [1.0, 1.0], "reward is not finite in rows 1"),
        ([1.0, np.inf], [1.0, 1.0], "reward is not finite in rows 1"),
        ([1.0], [0.0], "duration must be finite and > 0"),
        ([1.0], [-2.0], "rows 0"),
        ([1.0], [np.nan], "duration"),
        ([1.0, 2.0], [1.0], "equal length"),
        ([[1.0]], [[1.0]], "one-dimensional"),
        ([np.nan] * 20, [1.0] * 20, r"20 in all"),
    ],
)
def test_host_data_are_refused_by_name(reward, duration, message):
    with pytest.raises(ValueError, match=message):
        checked_batch(reward, duration)


def test_masked_host_rows_are_not_checked():
    batch = checked_batch([1.0, np.nan], [1.0, -1.0], mask=[True, False])
    assert np.isfinite(batch.reward).all()
    assert (batch.duration > 0).all()
    with pytest.raises(ValueError, match="context must have 2 rows"):
        checked_batch([1.0, 1.0], [1.0, 1.0], context=np.zeros(3, int))
