"""Seconds that buy no score: against pandas, known spreads, ties, few attempts."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rpg_jax import score_free_spread, value_bins, wasted_share

Z90 = stats.norm.ppf(0.9)


def attempts(seed, count, *, spread=3.0, levels=None, slope=0.5):
    """Attempts whose seconds spread by a known factor at every value."""
    rng = np.random.default_rng(seed)
    value = rng.random(count)
    if levels:
        value = np.floor(value * levels) / levels
    sigma = math.log(spread) / (2 * Z90)
    return value, np.exp(slope * value + sigma * rng.standard_normal(count))


def by_pandas(value, seconds, bins=5, least=8):
    """W by its definition, without a line of the module."""
    frame = pd.DataFrame({"value": value, "seconds": seconds}).dropna()
    lower = frame.value.rank(method="min") - 1
    frame["bin"] = np.floor(bins * lower / len(frame)).astype(int)
    ratios = [
        part.seconds.quantile(0.9) / part.seconds.quantile(0.1)
        for _, part in frame.groupby("bin")
        if len(part) >= least
    ]
    return np.median(ratios) if len(ratios) >= bins else math.nan, ratios


@pytest.mark.parametrize("levels", [None, 30, 7])
@pytest.mark.parametrize("count", [40, 83, 300])
def test_as_pandas_has_it(count, levels):
    value, seconds = attempts(count, count, levels=levels)
    value[::11] = np.nan
    value, seconds = np.append(value, [0.2] * 4), np.append(seconds, [1.0] * 4)
    found = score_free_spread(value, seconds, resamples=20)
    expected, ratios = by_pandas(value, seconds)
    if math.isnan(expected):  # ties: finer bins were tried, or none will do
        assert len(found.ratios) >= 5 or found.needed > 0
    else:
        assert found.spread == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(found.ratios, ratios)
        assert found.needed == 0
    valid = np.isfinite(value)
    low, high = np.quantile(seconds[valid], [0.05, 0.95])
    assert found.overall == pytest.approx(high / low, rel=1e-12)
    rank = stats.spearmanr(value[valid], np.log(seconds[valid])).statistic
    assert found.correlation == pytest.approx(rank, abs=1e-12)
    assert found.attempts == valid.sum()


def test_only_the_order_of_values_counts():
    value, seconds = attempts(3, 100)
    one = score_free_spread(value, seconds)
    other = score_free_spread(np.exp(9 * value) - 7, 100 * seconds)
    assert other.spread == pytest.approx(one.spread)
    assert (other.low, other.high) == pytest.approx((one.low, one.high))
    back = score_free_spread(-value, seconds)
    assert back.correlation == pytest.approx(-one.correlation)


@pytest.mark.parametrize("spread", [1.5, 3.0, 8.0])
def test_the_interval_covers_a_known_spread(spread):
    """Nominal 95%; percentile intervals of quantiles are a little off."""
    hits, sets = 0, 80
    for seed in range(sets):
        data = attempts([17, seed], 150, spread=spread, slope=0.0)
        found = score_free_spread(*data, resamples=200)
        assert found.low <= found.spread * 1.5
        hits += found.low <= spread <= found.high
    assert 0.85 <= hits / sets <= 1.0


def test_more_attempts_make_the_interval_narrower():
    def width(count):
        found = score_free_spread(*attempts(5, count, spread=5.0), resamples=300)
        return found.high / found.low

    assert width(2000) < 0.7 * width(100)


def test_equal_values_stay_in_one_bin():
    value = np.array([0.0] * 30 + [0.1] * 5 + list(np.linspace(1, 2, 25)))
    place = value_bins(value, 5)
    assert set(place[:30]) == {0}
    assert len(set(place[30:35])) == 1
    assert (np.diff(place) >= 0).all()


def test_finer_bins_where_most_attempts_tie():
    """60% of the attempts have no value; the others still make four bins of ten."""
    value, seconds = attempts(1, 100)
    value[:60] = 0.0
    found = score_free_spread(value, seconds)
    assert math.isfinite(found.spread)
    assert len(found.ratios) >= 5


@pytest.mark.parametrize("count", [0, 1, 39])
def test_too_few_attempts_have_no_spread(count):
    found = score_free_spread(*attempts(1, count))
    assert math.isnan(found.spread)
    assert math.isnan(found.low)
    assert (found.attempts, found.needed, len(found.ratios)) == (count, 40 - count, 0)
    assert math.isnan(found.overall) == (count == 0)
    assert math.isfinite(score_free_spread(*attempts(1, 40)).spread)


def test_how_many_more_where_values_tie():
    value = np.repeat(np.arange(5.0), [60, 4, 60, 60, 60])
    found = score_free_spread(value, np.ones(244))
    assert math.isnan(found.spread)
    assert found.needed == 244  # the smallest group has half of what it needs
    assert score_free_spread(np.ones(200), np.ones(200)).needed == 8
    assert math.isnan(score_free_spread(np.ones(200), np.ones(200)).correlation)


@pytest.mark.parametrize(
    ("value", "seconds", "options"),
    [
        ([1.0, 2.0], [1.0], {}),
        ([[1.0]], [[1.0]], {}),
        ([1.0, np.inf], [1.0, 1.0], {}),
        ([1.0, 2.0], [1.0, 0.0], {}),
        ([1.0, 2.0], [1.0, -1.0], {}),
        ([1.0, 2.0], [1.0, np.nan], {}),
        ([1.0], [1.0], {"bins": 0}),
        ([1.0], [1.0], {"min_attempts": 1}),
        ([1.0], [1.0], {"level": 1.0}),
        ([1.0], [1.0], {"resamples": 0}),
    ],
)
def test_what_is_refused(value, seconds, options):
    with pytest.raises(ValueError):
        score_free_spread(value, seconds, **options)


def test_failures_may_have_any_seconds():
    value, seconds = attempts(2, 60)
    worse = np.append(value, [np.nan, np.nan]), np.append(seconds, [np.nan, -3.0])
    assert score_free_spread(*worse)[:3] == score_free_spread(value, seconds)[:3]


def brute_waste(value, seconds, parent):
    """Walk from every new best to its first ancestor."""
    useful, best = set(), -math.inf
    for at, v in enumerate(value):
        if not math.isnan(v) and v > best:
            best, where = v, at
            while where >= 0:
                useful.add(where)
                where = parent[where]
    wasted = sum(s for at, s in enumerate(seconds) if at not in useful)
    return wasted / sum(seconds)


@pytest.mark.parametrize("seed", range(10))
def test_wasted_seconds_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    value = np.round(rng.random(60), 1)
    value[rng.random(60) < 0.2] = np.nan
    seconds = rng.exponential(size=60)
    parent = [int(rng.integers(-1, at)) if at else -1 for at in range(60)]
    expected = brute_waste(value, seconds, parent)
    assert wasted_share(value, seconds, parent=parent) == pytest.approx(expected)
    alone = brute_waste(value, seconds, [-1] * 60)
    assert wasted_share(value, seconds) == pytest.approx(alone)
    assert alone >= expected


def test_wasted_seconds_at_the_edges():
    assert math.isnan(wasted_share([], []))
    assert math.isnan(wasted_share([1.0], [0.0]))
    assert wasted_share([np.nan, np.nan], [1.0, 2.0]) == 1.0
    assert wasted_share([1.0, 1.0], [1.0, 3.0]) == 0.75  # an equal is no new best
    for parent in ([0, -1], [-1]):
        with pytest.raises(ValueError):
            wasted_share([1.0, 2.0], [1.0, 1.0], parent=parent)
    with pytest.raises(ValueError):
        wasted_share([1.0], [-1.0])
