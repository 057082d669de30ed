"""Dinkelbach against brute force over policies, and the band of its inexact form."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpg_jax import dinkelbach

X, A = 3, 4
# One compilation per shape serves every example.
solve = jax.jit(dinkelbach.optimal_rate)
iterate = jax.jit(dinkelbach.approximate_iteration)
spread_of = jax.jit(dinkelbach.duration_spread)


def problem(seed, *, negative=False):
    rng = np.random.default_rng(seed)
    reward = rng.normal(0.3, 1, (X, A)) if negative else rng.gamma(1.0, 1.0, (X, A))
    duration = np.exp(rng.normal(0, rng.uniform(0.1, 1.5), (X, A)))
    probs = rng.dirichlet(np.ones(X))
    return tuple(v.astype(np.float32) for v in (reward, duration, probs))


def brute_force(reward, duration, probs, mask=None):
    """Best rate over all deterministic policies, in float64."""
    reward, duration, probs = (np.asarray(v, np.float64) for v in (
        reward, duration, probs))  # fmt: skip
    best = -np.inf
    for u in itertools.product(range(reward.shape[1]), repeat=reward.shape[0]):
        cells = (np.arange(len(u)), np.array(u))
        if mask is not None and not np.asarray(mask)[cells].all():
            continue
        best = max(best, probs @ reward[cells] / (probs @ duration[cells]))
    return best


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_optimal_rate_equals_brute_force(seed, negative):
    reward, duration, probs = problem(seed, negative=negative)
    got = solve(*(jnp.asarray(v) for v in (reward, duration)), context_probs=probs)
    want = brute_force(reward, duration, probs / probs.sum(dtype=np.float64))
    size = np.abs(reward).max() / duration.min()
    np.testing.assert_allclose(got.rate, want, rtol=2e-6, atol=2e-7 * size)
    assert got.converged
    assert got.steps <= 8


@pytest.mark.parametrize(("contexts", "arms"), [(1, 1), (1, 7), (7, 1), (2, 5)])
def test_any_shape(contexts, arms):
    rng = np.random.default_rng(contexts + 10 * arms)
    reward = rng.random((contexts, arms)).astype(np.float32)
    duration = rng.uniform(0.5, 2, (contexts, arms)).astype(np.float32)
    got = dinkelbach.optimal_rate(jnp.asarray(reward), jnp.asarray(duration))
    want = brute_force(reward, duration, np.full(contexts, 1 / contexts))
    np.testing.assert_allclose(got.rate, want, rtol=1e-6)


def test_rates_rise_after_the_first_step_and_stop():
    steps = []
    for seed in range(50):
        reward, duration, probs = (jnp.asarray(v) for v in problem(seed))
        path = iterate(reward, duration, jnp.ones(12), context_probs=probs)
        best = solve(reward, duration, context_probs=probs)
        rates = np.asarray(path.rate)
        assert (np.diff(rates) >= -2e-6 * best.rate).all()
        assert (rates <= best.rate * (1 + 1e-6)).all()
        np.testing.assert_allclose(rates[-1], best.rate, rtol=1e-6)
        steps.append(int(best.steps))
    assert max(steps) <= 7


def test_masked_cells_and_empty_contexts_are_left_out():
    reward, duration, _ = problem(3)
    mask = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]], bool)
    dirty = np.where(mask, reward, np.nan)
    got = solve(
        jnp.asarray(dirty),
        jnp.asarray(np.where(mask, duration, 0)),
        mask=jnp.asarray(mask),
    )
    want = brute_force(
        reward[[0, 2]], duration[[0, 2]], np.array([0.5, 0.5]), mask[[0, 2]]
    )
    np.testing.assert_allclose(got.rate, want, rtol=1e-6)
    none = solve(
        jnp.asarray(dirty), jnp.asarray(duration), mask=jnp.zeros((X, A), bool)
    )
    assert none.rate == 0


def test_gradient_is_the_envelope():
    reward, duration, probs = (jnp.asarray(v) for v in problem(4))
    probs = probs / probs.sum()
    got = solve(reward, duration, context_probs=probs)
    by_reward, by_duration = jax.grad(
        lambda r, d: dinkelbach.optimal_rate(r, d, context_probs=probs).rate,
        argnums=(0, 1),
    )(reward, duration)
    _, time = dinkelbach.policy_totals(
        got.policy, reward, duration, context_probs=probs
    )
    want = probs[:, None] * jax.nn.one_hot(got.policy, A) / time
    np.testing.assert_allclose(by_reward, want, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(by_duration, -got.rate * want, rtol=1e-5, atol=1e-6)


def test_newton_form_keeps_float32_digits():
    # Rewards near rate * seconds: R / D as a quotient of large sums is the hard case.
    rng = np.random.default_rng(5)
    duration = rng.uniform(500, 700, (64, 32)).astype(np.float32)
    reward = (0.7 * duration + rng.normal(0, 0.1, (64, 32))).astype(np.float32)
    got = dinkelbach.optimal_rate(jnp.asarray(reward), jnp.asarray(duration)).rate
    r, d, rho = reward.astype(np.float64), duration.astype(np.float64), 0.0
    for _ in range(30):
        u = np.argmax(r - rho * d, axis=1)
        rho = r[np.arange(64), u].sum() / d[np.arange(64), u].sum()
    np.testing.assert_allclose(got, rho, rtol=3e-7)


def brute_spread(reward, duration, probs, gamma):
    """R by scanning every breakpoint of the greedy policy in [0, (1 + gamma) rho*]."""
    r, d = reward.astype(np.float64), duration.astype(np.float64)
    p = probs.astype(np.float64) / probs.sum(dtype=np.float64)
    best = brute_force(r, d, p)
    top = (1 + gamma) * best
    cuts = {0.0, top, best}
    for x in range(X):
        for a, b in itertools.combinations(range(A), 2):
            if d[x, a] != d[x, b]:
                cuts.add((r[x, a] - r[x, b]) / (d[x, a] - d[x, b]))
    cuts = sorted(c for c in cuts if 0 <= c <= top)
    points = [*cuts, *((a + b) / 2 for a, b in itertools.pairwise(cuts))]

    def seconds(rate):
        u = np.argmax(r - rate * d, axis=1)
        return p @ d[np.arange(X), u]

    middle = seconds(best)
    times = np.array([seconds(c) for c in points])
    return max((times / middle).max(), (middle / times).max()), best


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.05, 0.3, 1.0, 3.0]))
def test_duration_spread_equals_a_scan_of_all_breakpoints(seed, gamma):
    reward, duration, probs = problem(seed)
    got = spread_of(
        jnp.asarray(reward), jnp.asarray(duration), gamma, context_probs=probs
    )
    want, _ = brute_spread(reward, duration, probs, gamma)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.02, 0.1, 0.5, 1.0, 2.0]),
    st.sampled_from(["random", "high", "low", "alternating"]),
    st.floats(0, 30, width=32),
)
def test_the_tail_stays_in_the_band(seed, gamma, errors, start):
    reward, duration, probs = problem(seed)
    rng = np.random.default_rng(seed)
    exponent = {
        "random": rng.uniform(-1, 1, 60),
        "high": np.ones(60),
        "low": -np.ones(60),
        "alternating": (-1.0) ** np.arange(60),
    }[errors]
    factors = jnp.asarray((1 + gamma) ** exponent, jnp.float32)
    path = iterate(
        jnp.asarray(reward),
        jnp.asarray(duration),
        factors,
        context_probs=probs,
        initial_rate=start,
    )
    spread, best = brute_spread(reward, duration, probs, gamma)
    low, high = dinkelbach.tolerance_band(best, gamma, spread)
    tail = np.asarray(path.rate, np.float64)[20:]
    assert (tail <= high * (1 + 1e-5)).all()
    assert (tail >= low - 1e-5 * best).all()


def test_vmap_agrees_with_single_problems():
    tables = [problem(seed) for seed in range(4)]
    reward, duration, probs = (jnp.stack(v) for v in zip(*tables, strict=True))
    together = jax.vmap(
        lambda r, d, p: dinkelbach.optimal_rate(r, d, context_probs=p).rate
    )(reward, duration, probs)
    alone = [
        solve(r, d, context_probs=p).rate
        for r, d, p in zip(reward, duration, probs, strict=True)
    ]
    np.testing.assert_allclose(together, jnp.stack(alone), rtol=1e-6)
