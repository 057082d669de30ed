"""C-UCB's exact maximum against float64 enumeration in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bandit.cucb import brute_force_max, exact_max

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
exact = jax.jit(exact_max, static_argnames=("floor",))
brute = jax.jit(brute_force_max)


def check(tables, floor, incumbent):
    r, d, n, c = tables
    value, policy, info = exact(
        *(jnp.asarray(t) for t in tables), jnp.asarray(incumbent), floor=floor
    )
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
@pytest.mark.parametrize("shape", [(4, 11), (3, 21), (2, 40), (1, 1300)])
def test_exact_equals_float64_enumeration(kind, shape):
    rng = np.random.default_rng([KINDS.index(kind), *shape])
    tables = random_tables(rng, kind, *shape, BATCH)
    start = rng.integers(0, shape[1], (shape[0], BATCH)).astype(np.int32)
    for floor in (FLOOR, -np.inf):
        check(tables, floor, start)
