"""The harmonic mean of rates, weighted by reward, is a ratio of sums."""

import numpy as np
import pytest

import rpg_jax
from benchmarks import harmonic_rate
from rpg_jax.types import checked_batch


def test_weighted_by_reward_it_is_the_estimate_that_we_have():
    rng = np.random.default_rng(0)
    reward, seconds = rng.gamma(2.0, 1.0, 256), rng.lognormal(1.0, 1.0, 256)
    found = harmonic_rate.estimates(reward, seconds)
    assert found["weighted harmonic"] == pytest.approx(reward.sum() / seconds.sum())
    estimator = rpg_jax.empirical(forgetting=1.0)
    state = estimator.update(estimator.init(), checked_batch(reward, seconds))
    assert float(estimator.rate(state, 0.0)) == pytest.approx(
        found["weighted harmonic"], rel=1e-5
    )


def test_the_seconds_of_failures_are_lost():
    reward, seconds = np.array([2.0, 0.0, 1.0]), np.array([4.0, 10.0, 2.0])
    found = harmonic_rate.estimates(reward, seconds)
    assert found["weighted harmonic"] == pytest.approx(0.5)
    assert found["sum r / sum delta"] == pytest.approx(3 / 16)
    assert found["harmonic"] == 0.0


def test_the_benchmark_prints_all_environments(capsys):
    assert harmonic_rate.main(["--number=200", "--seeds=1", "--arms=4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["E1", "E2", "E3", "E4"]
