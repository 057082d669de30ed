"""Values from outside meet the limit of the type that they are computed in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax import arrays, conjugate, slots

# Without jit nothing but ``as_float`` turns float64 into float32; two rows are good.
WIDE = np.array([1.0, np.inf, 1e300, -1e300, np.nan, 2.0])


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8, bool]
)
def test_floats_are_at_least_single(dtype):
    got = arrays.as_float(np.ones(2, dtype))
    assert isinstance(got, jax.Array)
    assert got.dtype == jnp.float32


def test_floats_follow_jax_and_the_state():
    assert arrays.as_float(jnp.ones(2, jnp.bfloat16)).dtype == jnp.float32
    assert arrays.as_float(np.ones(2), jnp.float16).dtype == jnp.float32
    inf = np.inf
    np.testing.assert_array_equal(
        arrays.as_float(WIDE), [1.0, inf, inf, -inf, np.nan, 2.0]
    )


def test_a_traced_value_is_not_known():
    seen = []

    @jax.jit
    def look(x):
        seen.append(arrays.concrete(x))
        return x

    look(jnp.ones(2))
    assert seen == [None]
    np.testing.assert_array_equal(arrays.concrete([1.0, 2.0]), [1, 2])


def test_statistics_refuse_what_single_precision_makes_infinite():
    x = np.stack([WIDE, np.ones(6)], axis=-1)
    for got in (
        conjugate.moments(x),
        conjugate.segment_moments(x, jnp.zeros(6, jnp.int32), 1),
    ):
        assert got.rejected == 4
        assert got.number.sum() == 2
        for leaf in got:
            assert np.isfinite(leaf).all()


def test_slot_fits_refuse_it_too():
    seconds = np.array([1.0, 2.0, 3.0, 4.0, 1e300, 5.0])
    got = slots.fit_slots(conjugate.niw_prior(), WIDE, seconds, np.ones(6, bool))
    assert got.number == 2
    assert got.rejected == 4
    for leaf in got.niw:
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("dtype", [np.float16, np.int32])
def test_half_precision_and_integers_count(dtype):
    reward, seconds = np.array([3, 5, 4], dtype), np.array([1, 2, 4], dtype)
    x = np.stack([reward, seconds], axis=-1)
    prior = conjugate.niw_prior()
    got, want = conjugate.update(prior, x), conjugate.update(prior, x.astype("f4"))
    for g, w in zip(got, want, strict=True):
        assert g.dtype == jnp.float32
        np.testing.assert_array_equal(g, w)
    assert slots.fit_slots(prior, reward, seconds, np.ones(3, bool)).number == 3
