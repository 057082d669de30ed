"""Bootstrap intervals against normal theory, and the note about them."""

import math

import numpy as np
import pytest

from experiments.reporting import intervals, numbers


def test_intervals_of_many_units_are_about_right():
    """Against the normal theory of means and of ratios of sums."""
    rng = np.random.default_rng(3)
    values = rng.normal(2.0, 1.0, 400)
    found = intervals.mean_interval(values)
    half = 1.96 * values.std(ddof=1) / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.2 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.2 * half)
    seconds = rng.uniform(1, 3, 400)
    reward = 0.5 * seconds + rng.normal(0, 0.3, 400)
    rate = numbers.rate_interval(numbers.Units(reward, seconds, "chains"))
    expected = reward.sum() / seconds.sum()
    error = (reward - expected * seconds).std(ddof=1) / seconds.mean() / 20
    assert rate.value == pytest.approx(expected)
    assert rate.high - rate.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    one = numbers.Units(reward, seconds, "chains")
    other = numbers.Units(reward[:200] + 1, seconds[:200], "chains")
    apart = numbers.rate_difference(other, one)
    assert apart.low > 0
    assert numbers.rate_difference(one, one).value == 0
    alone = intervals.mean_interval(np.array([1.5]))
    assert alone.value == 1.5
    assert math.isnan(alone.low)
    assert math.isnan(intervals.mean_interval(np.array([])).value)


def test_the_note_counts_what_was_resampled():
    note = intervals.interval_note([("seeds", 0), ("seeds", 8)])
    assert note == "Intervals are percentile bootstraps over 8 seeds."
    assert intervals.interval_note([("seeds", 0)]) == ""
    assert "over 3 to 8 seeds" in intervals.interval_note([("seeds", 3), ("seeds", 8)])
    assert "true intervals are wider" in intervals.interval_note([("chains", 8)])
    mixed = intervals.interval_note([("chains", 8), ("seeds", 3)])
    assert "3 seeds" in mixed
    assert "for tasks where" in mixed
