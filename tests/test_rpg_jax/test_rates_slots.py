"""The rate by slots: the paper's bookkeeping, long runs, slots of contexts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rates_help import compiled

from rpg_jax import conjugate, ratio, slots
from rpg_jax.types import checked_batch

fit_slots = jax.jit(slots.fit_slots)


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
            rate = float(slot_rate(fit.niw, fit.number))
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
        rows = jnp.zeros(16), seconds, jnp.ones(16, bool)
        fitted = slots.fit_slots(niw, *rows, forgetting=0.3)
        if form == "analytic":
            rate = ratio.slot_rate(fitted.niw, fitted.number)
        else:
            rate = ratio.ratio_quantile_sampled(
                key, fitted.niw, fitted.number, num_batches=50, max_count=16
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
