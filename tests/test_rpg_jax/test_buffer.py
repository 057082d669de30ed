"""The attempt buffer against a plain Python list."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax import buffer

CAPACITY = 5


def fill(batches):
    """Add batches of (id, reward, duration, mask) and keep a list beside the buffer."""
    state = buffer.init(CAPACITY, {"id": jnp.int32(0), "tokens": jnp.zeros(2)})
    kept = []
    add = jax.jit(buffer.add)
    for ids, reward, duration, mask in batches:
        items = {
            "id": jnp.asarray(ids, jnp.int32),
            "tokens": jnp.stack([jnp.asarray(ids, jnp.float32)] * 2, axis=-1),
        }
        state = add(
            state,
            items,
            jnp.asarray(reward, jnp.float32),
            jnp.asarray(duration, jnp.float32),
            jnp.asarray(mask),
        )
        for i, r, d, m in zip(ids, reward, duration, mask, strict=True):
            if m and np.isfinite(r) and np.isfinite(d) and d > 0:
                kept.append((i, np.float32(r), np.float32(d)))
    return state, kept[-CAPACITY:]


def random_batches(seed, number, size):
    rng = np.random.default_rng(seed)
    ids = iter(range(10_000))
    for _ in range(number):
        yield (
            [next(ids) for _ in range(size)],
            rng.normal(size=size),
            rng.uniform(0.1, 3, size),
            rng.random(size) < 0.7,
        )


@pytest.mark.parametrize(("number", "size"), [(1, 3), (4, 3), (3, 8), (9, 1)])
def test_ring_holds_the_last_attempts_and_ranks_them(number, size):
    state, kept = fill(random_batches(number, number, size))
    assert state.size == len(kept)
    for rate in (0.0, 0.3, 2.0):
        want = sorted(kept, key=lambda item: -(item[1] - np.float32(rate) * item[2]))
        top = jax.jit(functools.partial(buffer.top_k, k=3))(
            state, rate=jnp.float32(rate)
        )
        n = min(3, len(kept))
        assert top.valid.sum() == n
        assert top.items["id"][:n].tolist() == [item[0] for item in want[:n]]
        np.testing.assert_array_equal(
            top.items["tokens"][:n, 1], [i[0] for i in want][:n]
        )
        np.testing.assert_allclose(
            top.score[:n], [i[1] - rate * i[2] for i in want[:n]], rtol=1e-5, atol=1e-6
        )


def test_the_ranking_follows_the_rate():
    # Slow and good against fast and fair: the price of a second decides.
    state, _ = fill([([1, 2], [0.95, 0.8], [20.0, 5.0], [True, True])])
    assert buffer.top_k(state, 1, rate=0.0).items["id"][0] == 1
    assert buffer.top_k(state, 1, rate=0.05).items["id"][0] == 2


def test_bad_attempts_are_counted_and_not_stored():
    state, kept = fill(
        [
            (
                [0, 1, 2, 3, 4, 5],
                [1.0, np.nan, np.inf, 0.5, 0.5, np.nan],
                [1.0, 1.0, 1.0, 0.0, -1.0, np.nan],
                [True, True, True, True, True, False],
            )
        ]
    )
    assert len(kept) == state.size == 1
    assert state.rejected == 4  # the masked-out row is nobody's error
    assert np.isfinite(state.reward).all()


def test_cycling_repeats_the_best_when_there_are_few():
    state, _ = fill([([7, 8], [0.1, 0.9], [1.0, 1.0], [True, True])])
    top = buffer.top_k(state, 5, cycle=True)
    assert top.items["id"].tolist() == [8, 7, 8, 7, 8]
    assert top.valid.all()
    assert buffer.top_k(state, 12, cycle=True).items["id"].shape == (12,)


def test_an_empty_buffer_has_nothing_valid():
    state = buffer.init(CAPACITY, jnp.zeros(()))
    for cycle in (False, True):
        assert not buffer.top_k(state, 3, rate=1.0, cycle=cycle).valid.any()


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="capacity"):
        buffer.init(0, jnp.zeros(()))
    state = buffer.init(CAPACITY, jnp.zeros(()))
    for k in (0, CAPACITY + 1):
        with pytest.raises(ValueError, match="without cycle"):
            buffer.top_k(state, k)


def test_one_trace_serves_every_batch():
    traces = []

    @jax.jit
    def add(*args):
        traces.append(0)
        return buffer.add(*args)

    state = buffer.init(CAPACITY, jnp.zeros(()))
    for n in range(4):
        state = add(state, jnp.zeros(3), jnp.ones(3), jnp.ones(3), jnp.arange(3) < n)
    assert len(traces) == 1
    assert state.size == CAPACITY
