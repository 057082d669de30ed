"""The clock of a run stands still while JAX compiles."""

import jax
import jax.numpy as jnp
import pytest

from experiments.policies.clock import WorkClock


def test_the_clock_stands_still_during_compilation():
    now = [100.0]
    clock = WorkClock(lambda: now[0])
    begin = clock()

    def event(end, seconds, name="/jax/core/compile/backend_compile_duration"):
        now[0] = end
        clock._event(name, seconds)

    event(103.0, 1.0)  # 102..103
    event(105.0, 0.5)  # 104.5..105, part of the next one
    event(106.0, 2.0)  # 104..106
    event(107.0, 5.0, name="/jax/other")
    now[0] = 110.0
    assert clock() - begin == pytest.approx(10 - 1 - 2)
    assert clock.compiled_s == pytest.approx(3.0)
    for k in range(3000):
        event(111.0 + k, 0.25)
    assert clock.compiled_s == pytest.approx(3.0 + 750)
    assert len(clock._spans) <= 1001


def test_the_clock_notices_this_jax():
    """The names of JAX's events are its own; this fails when they change."""
    clock = WorkClock().listen()

    @jax.jit
    def fresh(x):
        for _ in range(30):
            x = jnp.sin(x) @ x
        return x

    fresh(jnp.ones((20, 20))).block_until_ready()
    seen = clock.compiled_s
    assert seen > 0.005
    fresh(jnp.ones((20, 20))).block_until_ready()
    assert clock.compiled_s - seen < 0.5 * seen
