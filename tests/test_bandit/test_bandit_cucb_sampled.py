"""C-UCB's rate over random policies: fresh draws, and the pool that is kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bandit.cucb import (
    FLOOR,
    empty_pool,
    pool_actions,
    pool_rate,
    recount_pool,
    refresh_pool,
    sampled_rate,
)

X, A, P = 6, 5, 2048


def table_after(steps, seed=0):
    """Cell sums [X, 3, A] after random plays, some cells untried."""
    rng = np.random.default_rng(seed)
    table = np.zeros((X, 3, A), np.float32)
    for _ in range(steps):
        x, a = rng.integers(X), rng.integers(A - 1)  # the last action is never tried
        table[x, :, a] += (rng.uniform(0, 1), rng.uniform(0.5, 2), 1)
    return table


def f_of(table, actions, c):
    """f of policies [X, P] in float64."""
    sums = np.stack([table[x][:, actions[x]] for x in range(X)]).astype(np.float64)
    r, d, n = sums.sum(axis=0)
    with np.errstate(all="ignore"):
        return np.where(n > 0, r / d - np.sqrt(c / n), -np.inf)


refresh = jax.jit(refresh_pool)


def play(pool, table, rng, key, steps):
    for t in range(steps):
        x, a = int(rng.integers(X)), int(rng.integers(A - 1))
        old = table[x].copy()
        table[x, :, a] += (rng.uniform(0, 1), rng.uniform(0.5, 2), 1)
        uniform = jax.random.uniform(jax.random.fold_in(key, t))
        # copies: a view of host memory may be read after the next play changed it
        pool = refresh(pool, uniform, jnp.asarray(x), old, table[x].copy())
    return pool


def test_sampled_rate_is_a_maximum_over_tried_policies(key):
    table = table_after(40)
    c = 0.3
    draw = jax.jit(lambda k: sampled_rate(k, table, c, P))
    values = np.array([draw(k) for k in jax.random.split(key, 40)])
    tried = [np.flatnonzero(table[x, 2]) for x in range(X)]
    grid = np.stack([g.ravel() for g in np.meshgrid(*tried, indexing="ij")])
    everything = f_of(table, grid, c)
    assert (values <= everything.max() + 1e-5).all()
    # P independent draws reach the q-quantile with probability 1 - q^P
    order = np.sort(everything)
    assert np.mean(values >= order[int(0.995 * len(order))]) > 0.9
    # and fall short of the maximum about as often as (1 - 1/size)^P says
    miss = np.mean(values < everything.max() - 1e-5)
    expected = (1 - 1 / len(everything)) ** P
    assert abs(miss - expected) < 5 * np.sqrt(0.25 / 40)


def test_sampled_rate_of_an_empty_table_is_the_floor(key):
    empty = jax.jit(lambda table: sampled_rate(key, table, 1.0, P))
    assert float(empty(jnp.zeros((X, 3, A)))) == pytest.approx(FLOOR)
    assert float(pool_rate(empty_pool(X, P), 1.0)) == pytest.approx(FLOOR)


def test_pool_sums_are_those_of_its_policies(key):
    rng = np.random.default_rng(4)
    table = np.zeros((X, 3, A), np.float32)
    pool = play(empty_pool(X, P), table, rng, key, 300)
    actions = np.asarray(pool_actions(pool, table))
    sums = np.stack([table[x][:, actions[x]] for x in range(X)]).sum(axis=0)
    np.testing.assert_allclose(pool.sums, sums, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(recount_pool(pool, table).sums, sums, rtol=1e-6)
    value = float(pool_rate(pool, 0.3))
    assert value == pytest.approx(f_of(table, actions, 0.3).max(), abs=1e-4)


def test_pool_actions_are_uniform_over_tried_and_independent(key):
    rng = np.random.default_rng(5)
    table = np.zeros((X, 3, A), np.float32)
    pool = play(empty_pool(X, P), table, rng, key, 60)
    actions = np.asarray(pool_actions(pool, table))
    for x in range(X):
        tried = np.flatnonzero(table[x, 2])
        counts = np.bincount(actions[x], minlength=A)
        assert counts[[a for a in range(A) if a not in tried]].sum() == 0
        share = 1 / len(tried)
        sigma = np.sqrt(P * share * (1 - share)) + 1e-9
        assert (np.abs(counts[tried] - P * share) < 5 * sigma + 1).all()
    for x in range(X - 1):  # pairs of contexts: no correlation beyond chance
        first = actions[x] == actions[x][0]
        second = actions[x + 1] == actions[x + 1][0]
        if 0 < first.mean() < 1 and 0 < second.mean() < 1:
            assert abs(np.corrcoef(first, second)[0, 1]) < 5.5 / np.sqrt(P)


def test_pool_and_fresh_draws_have_the_same_distribution(key):
    """At one decision the two maxima are draws of one distribution."""
    fresh, pooled = [], []
    table = None
    for i in range(40):
        rng = np.random.default_rng(7)  # the same plays, other uniforms
        table = np.zeros((X, 3, A), np.float32)
        pool = play(empty_pool(X, P), table, rng, jax.random.fold_in(key, i), 30)
        pooled.append(float(pool_rate(pool, 0.3)))
    draw = jax.jit(lambda k: sampled_rate(k, table, 0.3, P))
    fresh = [float(draw(k)) for k in jax.random.split(jax.random.fold_in(key, 99), 40)]
    error = np.sqrt((np.var(fresh) + np.var(pooled)) / 40) + 1e-6
    assert abs(np.mean(fresh) - np.mean(pooled)) < 5 * error
