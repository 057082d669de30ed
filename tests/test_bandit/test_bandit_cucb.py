"""C-UCB's exact maximum against float64 enumeration in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bandit import envs
from bandit.cucb import (
    approximate_max,
    brute_force_max,
    disagreement,
    exact_max,
    log_term,
)
from bandit.cucb_bounds import cell_bounds, count_range, even_edges, near_edges
from bandit.cucb_certified import RateBounds, search
from bandit.cucb_policies import Tables
from bandit.cucb_record import record

FLOOR = 1e-9


def oracle(sum_r, sum_d, n, c):
    """max over all policies in float64, by np.ix_-style broadcasting; -inf if none."""
    num_contexts = sum_r.shape[0]
    shape = (sum_r.shape[1],) * num_contexts

    def total(table):
        out = np.zeros(shape)
        for x in range(num_contexts):
            axes = [1] * num_contexts
            axes[x] = shape[0]
            out = out + table[x].astype(np.float64).reshape(axes)
        return out

    r, d, t = total(sum_r), total(sum_d), total(n)
    ok = (d > 0) & (t > 0)
    with np.errstate(all="ignore"):
        return np.where(ok, r / d - np.sqrt(np.float64(c) / t), -np.inf)


def random_tables(rng, kind, num_contexts, num_actions, batch):
    """Cell sums [X, A, B] and penalties [B] of one nasty kind."""
    shape = (num_contexts, num_actions, batch)
    c = 2 * 10 ** rng.uniform(-2, 2.5, batch) * rng.uniform(6, 18, batch)
    if kind == "heavy":  # one context-cell dominates, as in late trials
        n = np.ceil(10 ** rng.uniform(0, 4, shape) * (rng.random(shape) < 0.15) + 1)
    elif kind == "early":
        n = rng.integers(0, 2, shape).astype(float)
    elif kind == "competing":  # several heavy cells of similar rate
        n = np.where(rng.random(shape) < 0.2, rng.integers(500, 4000, shape), 1.0)
        n = np.where(rng.random(shape) < 0.1, 0.0, n)
    else:
        n = rng.integers(1, 60, shape).astype(float)
    rate = rng.uniform(0.1, 0.9, shape)
    mean_d = rng.uniform(0.35, 3.0, shape)
    d = n * mean_d * (1 + 0.1 * rng.standard_normal(shape) / np.sqrt(np.maximum(n, 1)))
    d = np.where(n > 0, np.maximum(d, 0.3 * n), 0.0)
    r = rate * n * mean_d + 0.2 * np.sqrt(n) * rng.standard_normal(shape)
    if kind == "negative":
        r = r - 1.5 * n
    elif kind == "equal":
        r, d = 0.5 * n, 1.0 * n
    elif kind == "ties":
        r, d, n = np.round(r), np.round(d + 1), np.round(n / 10)
        r, d = np.where(n > 0, r, 0.0), np.where(n > 0, d, 0.0)
    elif kind == "zero_reward":
        r = np.where(rng.random(shape) < 0.7, 0.0, r)
    elif kind == "none":
        r, d, n = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    return [a.astype(np.float32) for a in (r, d, n, c)]


KINDS = [
    "heavy",
    "early",
    "competing",
    "plain",
    "negative",
    "equal",
    "ties",
    "zero_reward",
    "none",
]
BATCH = 24
brute = jax.jit(brute_force_max)


@jax.jit
def exact(r, d, n, c, incumbent, floor, needed):
    """One compilation per shape: compiling dominates these tests."""
    return exact_max(r, d, n, c, incumbent, floor=floor, needed=needed)


def check(tables, floor, incumbent):
    r, d, n, c = (np.asarray(t) for t in tables)
    floor = np.float32(floor)
    needed = np.ones(c.shape, bool)
    value, policy, info = exact(r, d, n, c, incumbent, floor, needed)
    contexts = np.arange(r.shape[0])
    for b in range(r.shape[2]):
        values = oracle(r[..., b], d[..., b], n[..., b], c[b])
        best = max(values.max(), floor)
        # a few float32 roundings of the two terms of f
        size = abs(best) if np.isfinite(best) else 0.0
        tolerance = 1e-6 * (size + np.sqrt(c[b])) + 1e-12
        if np.isfinite(best):
            assert abs(float(value[b]) - best) <= tolerance
        else:
            assert not np.isfinite(float(value[b]))
        chosen = values[tuple(np.asarray(policy)[contexts, b])]
        if best > floor:
            assert chosen >= best - tolerance
    return info


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape",
    [(4, 11), *(pytest.param(s, marks=pytest.mark.slow) for s in [(3, 21), (1, 1300)])],
)
def test_exact_equals_float64_enumeration(kind, shape):
    rng = np.random.default_rng([KINDS.index(kind), *shape])
    tables = random_tables(rng, kind, *shape, BATCH)
    start = rng.integers(0, shape[1], (shape[0], BATCH)).astype(np.int32)
    for floor in (FLOOR, -np.inf):
        check(tables, floor, start)


@pytest.mark.parametrize("num_actions", [1, 2, 5])
def test_few_actions_are_enumerated(num_actions):
    rng = np.random.default_rng(num_actions)
    tables = random_tables(rng, "plain", 4, num_actions, 3)
    check(tables, -np.inf, np.zeros((4, 3), np.int32))


@pytest.mark.parametrize("kind", ["heavy", "ties", "early"])
def test_brute_force_equals_float64_enumeration(kind):
    rng = np.random.default_rng(5)
    r, d, n, c = random_tables(rng, kind, 4, 11, BATCH)
    value, policy = brute(r, d, n, c)
    for b in range(BATCH):
        values = oracle(r[..., b], d[..., b], n[..., b], c[b])
        tolerance = 1e-6 * (abs(values.max()) + np.sqrt(c[b]))
        assert abs(float(value[b]) - values.max()) <= tolerance
        assert values[tuple(np.asarray(policy)[:, b])] >= values.max() - tolerance


bounds = jax.jit(cell_bounds)


def test_bounds_hold_for_every_policy():
    """Each cell's bound is at least G of every policy through it, at any level."""
    rng = np.random.default_rng(11)
    tight = 0
    for kind in ("heavy", "competing", "negative", "early"):
        r, d, n, c = random_tables(rng, kind, 4, 11, BATCH)
        tables = Tables(*(jnp.asarray(t) for t in (r, d, n)))
        allowed = jnp.ones(r.shape, bool)
        least, low, high = count_range(tables.visits, allowed)
        level = rng.uniform(-1, 2, BATCH).astype(np.float32)
        ratio = rng.uniform(0.3, 3, BATCH).astype(np.float32)
        for edges in (
            even_edges(low, high),
            near_edges(low, jnp.asarray(rng.uniform(1, 5000, BATCH), "f4"), high),
        ):
            assert (edges[0] <= low).all()
            assert (edges[-1] >= high).all()
            bound = np.asarray(bounds(tables, allowed, c, level, ratio, edges, least))
            for b in range(BATCH):
                total = oracle_gain(r[..., b], d[..., b], n[..., b], c[b], level[b])
                for x in range(4):
                    best = total.max(axis=tuple(y for y in range(4) if y != x))
                    live = np.isfinite(best)
                    assert (bound[x, :, b] >= best)[live].all()
                    tight += (bound[x, :, b] < 0)[live].sum()
    assert tight > 1000  # the bounds do prune


def oracle_gain(r, d, n, c, level):
    """G = R - v D - D sqrt(C/T) of every policy in float64; -inf where it is void."""
    value = oracle(r, d, n, c)
    duration = sum(
        np.asarray(d[x], np.float64).reshape([-1 if y == x else 1 for y in range(4)])
        for x in range(4)
    )
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(value), duration * (value - level), -np.inf)


C1, C2 = (
    np.repeat(np.logspace(-2, 2, 5), 5)[:24],
    np.tile(np.logspace(-4, 0, 5), 5)[:24],
)


@pytest.fixture(scope="module", params=["E1", "E4"])
def trajectory(request):
    env = envs.make_env(request.param, 10)
    steps = (60, 300, 540, 780, 3000, 5220)
    return record(jax.random.key(3), env, C1, C2, steps)[0]


def test_exact_on_recorded_tables(trajectory):
    for tables in trajectory:
        check(tables[:4], FLOOR, tables.incumbent)
        # a poor start costs time, never correctness
        check(tables[:4], FLOOR, np.full((4, BATCH), 7, np.int32))


def test_approximate_is_a_close_lower_bound(trajectory):
    differing = 0
    for tables in trajectory:
        value, _, _ = exact(*tables, np.float32(FLOOR), np.ones(BATCH, bool))
        close, policy = approximate(*tables)
        gap = np.asarray(value) - np.asarray(close)
        rounding = 1e-6 * (1 + np.sqrt(np.asarray(tables.penalty)))
        assert (gap > -rounding).all()
        assert (gap < 0.1).all()
        differing += (gap > rounding).sum()
        r, d, n, c = (np.asarray(t, np.float64) for t in tables[:4])
        for b in range(BATCH):  # its value is that of its policy
            own = oracle(r[..., b], d[..., b], n[..., b], c[b])
            own = own[tuple(np.asarray(policy)[:, b])]
            assert abs(max(own, FLOOR) - close[b]) <= rounding[b]
    assert differing <= 0.05 * BATCH * len(trajectory)


approximate = jax.jit(approximate_max)


def test_nested_vmap_is_the_batched_search(trajectory):
    tables = trajectory[-2]
    stacked = jnp.stack(tables[:3], axis=1)  # [X, 3, A, B]
    table = jnp.moveaxis(stacked, -1, 0).reshape(4, 6, 4, 3, 11)
    start = tables.incumbent.T.reshape(4, 6, 4)
    c = jnp.asarray([0.5, 3.0, 20.0, 400.0])  # one per outer index, shared inside

    def one(table, penalty, incumbent):
        bounds = RateBounds.empty(4)._replace(policy=incumbent)
        value, bounds = search(bounds, table, penalty, jnp.asarray(True))
        return value, bounds.policy

    value, policy = jax.jit(jax.vmap(jax.vmap(one, (0, None, 0))))(table, c, start)
    expected, chosen = brute(*tables[:3], jnp.repeat(c, 6))
    expected = np.maximum(expected, FLOOR)
    np.testing.assert_allclose(value.reshape(-1), expected, rtol=2e-6, atol=2e-5)
    sure = expected > FLOOR
    same = chosen == policy.reshape(-1, 4).T
    assert same[:, sure].mean() > 0.95  # ties within rounding aside


def test_trials_that_do_not_need_lambda_are_skipped(trajectory):
    tables = trajectory[-1]
    wanted = np.arange(BATCH) % 2 == 0
    value, _, info = exact(*tables, np.float32(FLOOR), wanted)
    full, _, all_info = exact(*tables, np.float32(FLOOR), np.ones(BATCH, bool))
    np.testing.assert_array_equal(value[wanted], full[wanted])
    assert (np.asarray(value) <= np.asarray(full)).all()
    assert info.searched < all_info.searched


def test_a_floor_out_of_reach_needs_no_search():
    rng = np.random.default_rng(2)
    r, d, n, _ = random_tables(rng, "plain", 4, 11, BATCH)
    c = np.full(BATCH, 1e5, np.float32)
    info = check([r, d, n, c], FLOOR, np.zeros((4, BATCH), np.int32))
    assert int(info.searched) == 0


def test_more_than_four_contexts_are_refused():
    zeros = jnp.zeros((5, 3, 2))
    with pytest.raises(ValueError, match="at most 4 contexts"):
        exact_max(zeros, zeros, zeros, 1.0, jnp.zeros((5, 2), jnp.int32))


def test_log_term():
    got = log_term(jnp.asarray([1.0, 2.0, 100.0]), 4 * np.log(6))
    want = np.log([2.0, 2.0, 100.0]) + 0.5 * np.log(1 + 6**4)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.isfinite(log_term(jnp.asarray(5.0), 64 * np.log(161)))


@pytest.mark.slow
@pytest.mark.parametrize("env", ["E1", "E3", "E4"])
def test_exact_at_thirty_arms_on_recorded_tables(env):
    steps = (50, 150, 1000, 4000, 12000, 30000)
    recorded = record(jax.random.key(8), envs.make_env(env, 30), C1, C2, steps)[0]
    for tables in recorded:
        info = check(tables[:4], FLOOR, tables.incumbent)
        assert int(info.enumerated) <= 2
    gap, differs = jax.jit(disagreement)(*recorded[-1])
    assert (np.asarray(gap) > -1e-4).all()
    assert int(differs.sum()) <= 3
