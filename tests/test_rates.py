"""Rate estimators: closed forms, convergence, and what bad rows do to them."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rpg_jax import conjugate, dinkelbach, rates, ratio
from rpg_jax.types import Batch, checked_batch

X, A, B = 3, 4, 64


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    return rng.uniform(0.2, 2, (X, A)), rng.uniform(0.5, 3, (X, A))


def draw(world, seed, size=B, noise=0.1, greedy=None):
    rng = np.random.default_rng(seed)
    reward, duration = world
    context = rng.integers(0, X, size)
    action = rng.integers(0, A, size) if greedy is None else greedy[context]
    r = reward[context, action] + noise * rng.normal(size=size)
    d = duration[context, action] * np.exp(noise * rng.normal(size=size))
    return checked_batch(r, d, context=context, action=action)


class Net(nn.Module):
    """A table as a network: one-hot contexts, one dense layer."""

    @nn.compact
    def __call__(self, context):
        out = nn.Dense(2 * A)(jax.nn.one_hot(context, X))
        return out.reshape((*context.shape, A, 2))


def neural(num_steps=40, **kwargs):
    net = Net()
    params = net.init(jax.random.key(1), jnp.arange(X))
    return rates.neural(
        net.apply,
        params,
        optax.adam(0.03),
        num_steps=num_steps,
        contexts=jnp.arange(X),
        **kwargs,
    )


def estimators():
    return {
        "niw": rates.niw(X, A),
        "niw_log": rates.niw(X, A, log_duration=True, forgetting=0.9),
        "niw_quantile": rates.niw(X, A, quantile=0.9),
        "niw_slots": rates.niw_slots(16, age=50, fit_every=8),
        "niw_slots_context": rates.niw_slots(X, by_context=True),
        "robbins_monro": rates.robbins_monro(0.1),
        "empirical": rates.empirical(),
        "neural": neural(num_steps=3),
    }


NAMES = list(estimators())


@functools.cache
def compiled(name):
    estimator = estimators()[name]
    traces = []

    def update(state, batch):
        traces.append(0)
        return estimator.update(state, batch)

    return estimator, jax.jit(update), jax.jit(estimator.rate), traces


@pytest.mark.parametrize("name", NAMES)
def test_bad_rows_are_counted_and_change_nothing(world, name):
    estimator, update, rate, traces = compiled(name)
    clean = draw(world, 1)
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
def test_no_data_means_rate_zero_and_an_unchanged_state(world, name):
    estimator, update, rate, _ = compiled(name)
    state = estimator.init()
    assert rate(state, 0.0) == 0
    empty = draw(world, 2)._replace(mask=jnp.zeros(B, bool))
    after = update(update(state, draw(world, 3)), empty)
    before = update(state, draw(world, 3))
    if name.startswith("niw_slots"):  # decisions still elapse
        after = after._replace(step=before.step)
    for g, w in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("name", ["niw", "niw_slots", "robbins_monro", "neural"])
def test_vmap_over_trials(world, name):
    estimator, update, rate, _ = compiled(name)
    batches = [draw(world, s) for s in (4, 5)]
    stacked = jax.tree.map(lambda *v: jnp.stack(v), *batches)
    start = jax.tree.map(lambda v: jnp.stack([v, v]), estimator.init())
    together = jax.jit(jax.vmap(estimator.update))(start, stacked)
    got = jax.jit(jax.vmap(estimator.rate, (0, None)))(together, 0.2)
    want = [rate(update(estimator.init(), b), 0.2) for b in batches]
    np.testing.assert_allclose(got, jnp.stack(want), rtol=2e-4)


@pytest.mark.parametrize("log_duration", [False, True])
def test_cell_means_and_greedy_rate(world, log_duration):
    estimator = rates.niw(X, A, log_duration=log_duration)
    state = estimator.init()
    batches = [draw(world, s, size=800) for s in range(3)]
    for batch in batches:
        state = jax.jit(estimator.update)(state, batch)
    assert state.count.sum() == 2400
    c, a, r, d = (
        np.concatenate([np.asarray(b[i], np.float64) for b in batches])
        for i in range(4)
    )
    reward, duration = np.empty((X, A)), np.empty((X, A))
    for x in range(X):
        for k in range(A):
            rows = (c == x) & (a == k)
            reward[x, k], duration[x, k] = r[rows].mean(), d[rows].mean()
            if log_duration:
                logs = np.log(d[rows])
                duration[x, k] = np.exp(logs.mean() + logs.var() / 2)
    rate = jax.jit(estimator.rate)
    for rho in (0.0, 0.4, 1.5):
        u = np.argmax(reward - rho * duration, axis=1)
        want = reward[range(X), u].sum() / duration[range(X), u].sum()
        np.testing.assert_allclose(rate(state, rho), want, rtol=3e-3)
    best = dinkelbach.optimal_rate(*(jnp.asarray(v, jnp.float32) for v in world)).rate
    got = rates.fixed_point(estimator, state, 0.0)
    np.testing.assert_allclose(got, best, rtol=0.03)


def test_untried_arms_and_contexts_are_not_considered():
    estimator = rates.niw(X, A)
    # Context 2 is never seen; the untried arms' prior mean (0 reward in 0 s) is no arm.
    batch = checked_batch(
        [-1.0, 2.0], [1.0, 4.0], context=np.array([0, 1]), action=np.array([0, 3])
    )
    state = jax.jit(estimator.update)(estimator.init(), batch)
    got = jax.jit(estimator.rate)(state, 0.0)
    np.testing.assert_allclose(got, 1 / 5, rtol=1e-5)


def test_context_probabilities_weigh_the_contexts():
    estimator = rates.niw(2, 1, context_probs=jnp.array([0.9, 0.1]))
    batch = checked_batch([1.0, 3.0], [1.0, 2.0], context=np.array([0, 1]))
    state = jax.jit(estimator.update)(estimator.init(), batch)
    got = jax.jit(estimator.rate)(state, 0.0)
    np.testing.assert_allclose(got, 1.2 / 1.1, rtol=1e-5)


def test_quantile_is_optimistic_and_shrinks_with_data(world):
    plain, upper = rates.niw(X, A), rates.niw(X, A, quantile=0.95)
    lower = rates.niw(X, A, quantile=0.05)
    rate = jax.jit(lambda s: [e.rate(s, 0.3) for e in (lower, plain, upper)])
    update = jax.jit(plain.update)
    small = rate(update(plain.init(), draw(world, 6, size=200)))
    large = rate(update(plain.init(), draw(world, 6, size=20_000)))
    assert small[0] < small[1] < small[2]
    assert small[2] - small[1] > 3 * (large[2] - large[1]) > 0


def test_quantile_covers_the_truth_as_often_as_it_says():
    # One cell, 30 pairs: the 90% quantile of the rate lies above the true rate in 90%
    # of 400 data sets (band: 5 binomial standard errors).
    estimator = rates.niw(1, 1, quantile=0.9)
    rng = np.random.default_rng(7)
    z = rng.normal(size=(2, 400, 30))
    reward = 1 + 0.4 * z[0]
    duration = 3 + 0.6 * z[1]
    zeros = jnp.zeros((400, 30), jnp.int32)
    batch = Batch(
        zeros,
        zeros,
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(duration, jnp.float32),
        jnp.ones((400, 30), bool),
    )
    start = estimator.init()
    got = jax.jit(jax.vmap(lambda b: estimator.rate(estimator.update(start, b), 0.0)))(
        batch
    )
    share = float((got > 1 / 3).mean())
    assert abs(share - 0.9) < 5 * np.sqrt(0.09 / 400)


def test_forgetting_follows_a_change(world):
    moved = (world[0] * 3, world[1])
    estimates = {}
    for f in (1.0, 0.5):
        estimator = rates.niw(X, A, forgetting=f)
        update = jax.jit(estimator.update)
        state = estimator.init()
        for s in range(10):
            state = update(state, draw(world, s, size=256))
        for s in range(4):
            state = update(state, draw(moved, s, size=256))
        estimates[f] = float(rates.fixed_point(estimator, state, 0.0))
    target = float(
        dinkelbach.optimal_rate(*(jnp.asarray(v, jnp.float32) for v in moved)).rate
    )
    assert abs(estimates[0.5] / target - 1) < 0.1
    assert abs(estimates[1.0] / target - 1) > 0.3


fit_slots = jax.jit(conjugate.fit_slots)
slot_rate = jax.jit(ratio.slot_rate)


def section_three_slots(decisions, num_slots, age, every):
    """The paper's slots in plain Python: (reward, duration, feeds) per decision."""
    reward, duration = np.zeros(num_slots), np.zeros(num_slots)
    birth, cursor = np.zeros(num_slots), 0
    niw, rate, fits = conjugate.niw_prior(), 0.0, 0
    for t, (r, d, feeds) in enumerate(decisions, start=1):
        if not feeds:
            continue
        if t - birth[cursor] > age:
            reward[cursor] = duration[cursor] = 0
            birth[cursor] = t
        reward[cursor] += r
        duration[cursor] += d
        cursor = (cursor + 1) % num_slots
        if t % every == 0 and (duration > 0).sum() >= 2:
            fit = fit_slots(
                niw,
                jnp.asarray(reward, jnp.float32),
                jnp.asarray(duration, jnp.float32),
                jnp.asarray(duration > 0),
            )
            niw, fits = fit.niw, fits + 1
            rate = float(slot_rate(fit.niw, fit.count))
    return reward, duration, rate, fits


def test_slots_follow_the_papers_bookkeeping():
    rng = np.random.default_rng(8)
    decisions = [
        (rng.normal(1, 0.3), np.exp(rng.normal(0, 0.3)), rng.random() < 0.6)
        for _ in range(150)
    ]
    r, d, feeds = (np.array(v) for v in zip(*decisions, strict=True))
    want_r, want_d, want, fits = section_three_slots(decisions, 16, 50, 8)
    assert fits > 5
    estimator, _, rate, _ = compiled("niw_slots")
    state = estimator.init()
    for start in range(0, 150, 50):  # the split into batches must not matter
        part = slice(start, start + 50)
        batch = checked_batch(r[part], d[part], mask=feeds[part])
        state = jax.jit(estimator.update)(state, batch)
    np.testing.assert_allclose(state.reward, want_r, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.duration, want_d, rtol=1e-5)
    np.testing.assert_allclose(rate(state, 0.0), want, rtol=1e-4)


@pytest.mark.parametrize("form", ["analytic", "sampled"])
def test_a_long_run_without_any_reward_has_rate_zero(form):
    """Each fit keeps 0.3 of the scale: 80 fits would take it out of float32."""
    seconds = jnp.asarray(np.random.default_rng(0).lognormal(1, 0.5, 16), jnp.float32)

    @jax.jit
    def fit(niw, key):
        slots = jnp.zeros(16), seconds, jnp.ones(16, bool)
        fitted = conjugate.fit_slots(niw, *slots, forgetting=0.3)
        if form == "analytic":
            rate = ratio.slot_rate(fitted.niw, fitted.count)
        else:
            rate = ratio.ratio_quantile_sampled(
                key, fitted.niw, fitted.count, num_batches=50, max_count=16
            )
        return fitted.niw, rate

    niw, found = conjugate.niw_prior(), []
    for k in range(200):
        niw, rate = fit(niw, jax.random.key(k))
        found.append(float(rate))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[100:], 0.0, atol=1e-12)
    assert np.isfinite(niw.scale).all()
    assert np.linalg.eigvalsh(np.asarray(niw.scale, np.float64)).min() > 0


def test_slots_by_context_keep_lifetime_sums():
    estimator, _, rate, _ = compiled("niw_slots_context")
    context = np.array([0, 2, 2, 1, 0])
    batch = checked_batch([1.0, 2, 3, 4, 5], [1.0, 2, 3, 4, 5], context=context)
    state = jax.jit(estimator.update)(estimator.init(), batch)
    np.testing.assert_allclose(state.reward, [6, 4, 5])
    np.testing.assert_allclose(state.duration, [6, 4, 5])
    assert rate(state, 0.0) > 1  # an optimistic quantile of a rate of 1


@pytest.mark.parametrize(
    "step", [0.2, optax.exponential_decay(0.5, 20, 0.5, end_value=0.01)]
)
def test_robbins_monro_finds_the_ratio_of_means(world, step):
    greedy = np.array([0, 1, 2])
    estimator = rates.robbins_monro(step)
    update = jax.jit(estimator.update)
    state = estimator.init()
    for s in range(150):
        state = update(state, draw(world, s, greedy=greedy))
    reward, duration = (v[range(X), greedy] for v in world)
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


def test_neural_learns_the_table(world):
    estimator = neural(num_steps=60)
    update = jax.jit(estimator.update)
    state = estimator.init()
    for s in range(12):
        state = update(state, draw(world, s, size=256))
    assert state.skipped == 0
    best = dinkelbach.optimal_rate(*(jnp.asarray(v, jnp.float32) for v in world)).rate
    got = rates.fixed_point(estimator, state, 0.0)
    np.testing.assert_allclose(got, best, rtol=0.08)


def test_neural_skips_steps_that_are_not_finite(world):
    net = Net()
    params = net.init(jax.random.key(1), jnp.arange(X))
    estimator = rates.neural(
        net.apply, params, optax.sgd(1e30), num_steps=4, contexts=jnp.arange(X)
    )
    state = jax.jit(estimator.update)(estimator.init(), draw(world, 1))
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
