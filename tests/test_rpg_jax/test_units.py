"""The neural estimator's units: a first batch that is unlike the rest, and jit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rates_help import WORLD, A, B, Net, X, draw

from rpg_jax import dinkelbach, rates, units
from rpg_jax.network import MeanNetwork

TRUE = float(
    dinkelbach.optimal_rate(*(jnp.asarray(v, jnp.float32) for v in WORLD)).rate
)


def table(rule):
    net = Net()
    contexts = jnp.arange(X)
    params = net.init(jax.random.key(0), contexts)
    return rates.neural(
        net.apply, params, optax.adam(0.02), num_steps=40, contexts=contexts, units=rule
    )


def after(estimator, first, batches=12):
    """The rate after a first batch and ``batches`` of the world."""
    update = jax.jit(estimator.update)
    state = update(estimator.init(), first)
    for seed in range(batches):
        state = update(state, draw(WORLD, seed, size=256))
    return float(rates.fixed_point(estimator, state, 0.0)), state


@pytest.mark.parametrize(("reward", "seconds"), [(0.01, 1.0), (1.0, 0.01), (0.01, 100)])
def test_an_unlike_first_batch_does_not_set_the_units(reward, seconds):
    first = draw((WORLD[0] * reward, WORLD[1] * seconds), 99, noise=0.0)
    got, state = after(table("running"), first)
    assert abs(got / TRUE - 1) < 0.1
    assert 0.3 < state.units.scale[0] < 3
    fixed, _ = after(table("first"), first)
    assert abs(fixed / TRUE - 1) > abs(got / TRUE - 1)


def test_first_units_stay():
    estimator = table("first")
    first = draw(WORLD, 1)
    state = jax.jit(estimator.update)(estimator.init(), first)
    want = [np.sqrt(np.mean(np.square(v))) for v in (first.reward, first.duration)]
    np.testing.assert_allclose(state.units.scale, want, rtol=1e-5)
    _, later = after(estimator, first, batches=1)
    np.testing.assert_array_equal(later.units.scale, state.units.scale)


def test_running_units_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(600, [0.5, 3.0], (5, 40, 2)).astype(np.float32)
    target = rng.uniform(1, 2, (5, 2, 40)).astype(np.float32)
    keep = rng.random((5, 40)) < 0.7
    state = units.empty_units(x[0])
    step = jax.jit(units.moved)
    for row in range(5):
        rows = keep[row]
        state = step(
            state,
            jnp.asarray(target[row] * rows),
            jnp.asarray(np.where(rows[:, None], x[row], 0)),
            jnp.asarray(rows),
        )
    np.testing.assert_allclose(state.mean, x[keep].mean(0), rtol=1e-5)
    np.testing.assert_allclose(state.spread, x[keep].std(0), rtol=1e-3)
    values = np.moveaxis(target, 1, 2)[keep]
    np.testing.assert_allclose(state.scale, np.abs(values).mean(0), rtol=1e-5)
    assert float(state.number) == keep.sum()
    same = step(state, jnp.zeros((2, 40)), jnp.zeros((40, 2)), jnp.zeros(40, bool))
    for got, want in zip(same, state, strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_past_fades_after_the_memory_is_full():
    state = units.empty_units(jnp.arange(2))
    keep = jnp.ones(1024, bool)
    index = jnp.zeros(1024, jnp.int32)
    step = jax.jit(units.moved)
    for size in (100.0, *[1.0] * 40):
        state = step(state, jnp.full((2, 1024), size), index, keep)
    assert float(state.number) == units.MEMORY
    np.testing.assert_allclose(units.sizes(state), 1.0, rtol=1e-3)


def test_features_of_any_size_are_standardised():
    """Features of 1e6 +- 1e3 saturate the network where they are not."""
    net = MeanNetwork(num_arms=A)
    contexts = 1e6 + 1e3 * jnp.eye(X)
    params = net.init(jax.random.key(0), contexts)
    got = {}
    for rule in ("running", "first"):
        estimator = rates.neural(
            net.apply, params, optax.adam(0.02), num_steps=60, contexts=contexts,
            units=rule,
        )  # fmt: skip
        update = jax.jit(estimator.update)
        state = estimator.init()
        for seed in range(12):
            batch = draw(WORLD, seed, size=256)
            state = update(state, batch._replace(context=contexts[batch.context]))
        got[rule] = float(rates.fixed_point(estimator, state, 0.0)) / TRUE
    assert abs(got["running"] - 1) < 0.1
    assert abs(got["first"] - 1) > abs(got["running"] - 1)


def test_rewards_of_zero_have_the_unit_one():
    estimator = table("running")
    zero = draw((WORLD[0] * 0, WORLD[1]), 3, noise=0.0, size=B)
    state = jax.jit(estimator.update)(estimator.init(), zero)
    np.testing.assert_array_equal(units.sizes(state.units)[0], 1)
    assert state.skipped == 0


def test_unknown_units_are_refused():
    with pytest.raises(ValueError, match="units must be running or first"):
        table("batch")
