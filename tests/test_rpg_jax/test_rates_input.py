"""What rate estimators and ``checked_batch`` refuse, and what they ask for."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rpg_jax import rates
from rpg_jax.types import Batch, RateEstimator, checked_batch


def linear(params, context):
    """[N, 2] features -> [N, 2 arms, 2]."""
    return (context @ params).reshape((-1, 2, 2))


def neural(**kwargs):
    return rates.neural(
        linear,
        jnp.full((2, 4), 0.1, jnp.float32),
        optax.sgd(0.01),
        num_steps=2,
        contexts=jnp.eye(2),
        **kwargs,
    )


ESTIMATORS = {
    "niw": lambda: rates.niw(1, 2),
    "niw_slots": lambda: rates.niw_slots(4, fit_every=2),
    "by_context": lambda: rates.niw_slots(2, by_context=True),
    "robbins_monro": lambda: rates.robbins_monro(0.1),
    "empirical": rates.empirical,
    "neural": neural,
}


def numpy_batch(name, reward, duration):
    """Rewards and seconds as NumPy has them, for an update without jit."""
    size = len(reward)
    return Batch(
        context=jnp.ones((size, 2)) if name == "neural" else jnp.zeros(size, jnp.int32),
        action=jnp.zeros(size, jnp.int32),
        reward=reward,
        duration=duration,
        mask=jnp.ones(size, bool),
    )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_float64_meets_the_limit_of_float32(name):
    estimator = ESTIMATORS[name]()
    reward = np.array([1.0, np.inf, 1e300, 2.0, 3.0, 1.5])
    duration = np.array([1.0, 1.0, 1.0, np.inf, 1e300, 2.0])
    state = estimator.update(estimator.init(), numpy_batch(name, reward, duration))
    assert state.rejected == 4
    for leaf in jax.tree.leaves(state):
        assert np.isfinite(leaf).all()
    assert np.isfinite(estimator.rate(state, 0.0))


@pytest.mark.parametrize("dtype", [np.float16, np.int32])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_half_precision_and_integers_are_data(name, dtype):
    estimator = ESTIMATORS[name]()
    reward, duration = np.array([3, 5], dtype), np.array([1, 3], dtype)
    state = estimator.update(estimator.init(), numpy_batch(name, reward, duration))
    assert state.rejected == 0
    if name in ("niw", "empirical"):
        np.testing.assert_allclose(estimator.rate(state, 0.0), 2.0, rtol=5e-3)


def test_padding_is_no_decision():
    estimator = rates.niw_slots(4)
    plain = checked_batch([1.0, 2.0, 3.0], [1.0, 1.0, 2.0], mask=[True, False, True])
    filled = plain._replace(padding=jnp.array([False, True, False]))
    update = jax.jit(estimator.update)
    got, want = update(estimator.init(), filled), update(estimator.init(), plain)
    assert got.step == 2
    assert want.step == 3  # a masked-out row took place, a padding row did not
    np.testing.assert_array_equal(got.reward, want.reward)


def test_estimators_say_which_indices_they_read():
    assert rates.niw(2, 3).needs == ("context", "action")
    assert rates.niw(1, 3).needs == ("action",)
    assert rates.niw_slots(4, by_context=True).needs == ("context",)
    assert neural().needs == ("context", "action")
    assert rates.niw_slots(4).needs == ()
    empty = rates.empirical()
    assert RateEstimator(empty.init, empty.update, empty.rate).needs == ()


def test_indices_must_be_integers():
    estimator = rates.niw(2, 2)
    batch = checked_batch([1.0], [1.0], context=[0.5], action=[1])
    with pytest.raises(ValueError, match="context must be integers"):
        estimator.update(estimator.init(), batch)


@pytest.mark.parametrize("masked", [True, False])
def test_features_that_are_not_finite_reach_no_gradient(masked):
    estimator = neural()
    features = np.array([[1.0, 0.0], [0.5, 1.0], [np.nan, np.inf]], np.float32)
    dirty = Batch(
        context=jnp.asarray(features),
        action=jnp.array([0, 1, 0]),
        reward=jnp.array([1.0, 2.0, 3.0]),
        duration=jnp.array([1.0, 2.0, 1.0]),
        mask=jnp.array([True, True, not masked]),
    )
    clean = dirty._replace(
        context=jnp.asarray(np.nan_to_num(features, posinf=0.0)),
        mask=jnp.array([True, True, False]),
    )
    update = jax.jit(estimator.update)
    got, want = update(estimator.init(), dirty), update(estimator.init(), clean)
    assert int(got.rejected) == int(not masked)
    assert got.skipped == 0
    np.testing.assert_array_equal(got.params, want.params)
    assert not np.array_equal(got.params, estimator.init().params)


WEIGHTS = [[-1.0, 2.0], [0, 0], [np.nan, 1.0], [np.inf, 1.0], [1.0, 1.0, 1.0], 1.0]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_context_weights_are_checked_at_once(weights):
    for build in (lambda **kw: rates.niw(2, 1, **kw), neural):
        with pytest.raises(ValueError, match="context_probs must be 2"):
            build(context_probs=weights)


def test_context_weights_may_be_a_list_or_traced():
    batch = checked_batch([1.0, 3.0], [1.0, 2.0], context=[0, 1])
    estimator = rates.niw(2, 1, context_probs=[9, 1])
    state = jax.jit(estimator.update)(estimator.init(), batch)

    @jax.jit
    def traced(weights):
        return rates.niw(2, 1, context_probs=weights).rate(state, 0.0)

    for got in (estimator.rate(state, 0.0), traced(jnp.array([0.9, 0.1]))):
        np.testing.assert_allclose(got, 1.2 / 1.1, rtol=1e-5)


@pytest.mark.parametrize("step", [-1.0, 0.0, np.nan, np.inf, np.float32(-0.1), 0])
def test_a_step_of_no_use_is_refused(step):
    with pytest.raises(ValueError, match="step_size must be finite and > 0"):
        rates.robbins_monro(step)


def test_a_schedule_that_starts_at_infinity_keeps_the_rate():
    estimator = rates.robbins_monro(lambda k: 1.0 / k.astype(jnp.float32))
    update = jax.jit(estimator.update)
    batch = checked_batch([1.0], [2.0])
    state = update(estimator.init(), batch)
    assert state.rate == 0
    assert state.step == 1
    for _ in range(50):
        state = update(state, batch)
    assert 0.4 < state.rate <= 0.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"action": [1.9]}, "action must be integers, got float64"),
        ({"action": [2**32 + 1]}, "action is outside the range of int32 in rows 0"),
        ({"context": [-(2**31) - 1]}, "context is outside the range of int32"),
        ({"context": np.array([2**63], np.uint64)}, "context is outside the range"),
        ({"context": [[1.0, np.nan]]}, "context is not finite in rows 0"),
        ({"context": [[1.0, 1e300]]}, "context is not finite in rows 0"),
    ],
)
def test_host_indices_and_features_are_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=message):
        checked_batch([1.0], [1.0], **fields)


def test_masked_host_rows_hold_zeros():
    batch = checked_batch(
        [1.0, 1.0],
        [1.0, 1.0],
        context=[[np.nan, 1.0], [2.0, 3.0]],
        action=[2**40, 1],
        mask=[False, True],
    )
    np.testing.assert_array_equal(batch.context, [[0, 0], [2, 3]])
    np.testing.assert_array_equal(batch.action, [0, 1])
    assert batch.action.dtype == jnp.int32


def test_a_batch_may_be_empty():
    batch = checked_batch([], [], context=[], action=[])
    assert all(len(field) == 0 for field in batch[:5])
    assert batch.action.dtype == jnp.int32
