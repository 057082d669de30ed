"""Seconds that buy no score: what a price of a second could win at all.

Attempts of equal value that take very different seconds leave something to win; where
every second buys score, a price of it can only lose. NumPy on the host: a handful of
attempts is measured once, before any training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from rpg_jax import checks


class Spread(NamedTuple):
    """What ``score_free_spread`` has measured.

    Attributes:
      spread: W, p90/p10 of seconds at equal value; NaN with too few attempts.
      low: lower end of its bootstrap interval.
      high: upper end.
      ratios: [bins] p90/p10 of each bin, by rising value; empty without W.
      overall: p95/p5 of the seconds of all valid attempts.
      correlation: Spearman's, of value and seconds (and so of log seconds).
      attempts: valid attempts.
      needed: about how many more of them W needs; 0 where it is given.
    """

    spread: float
    low: float
    high: float
    ratios: Float[np.ndarray, " bins"]
    overall: float
    correlation: float
    attempts: int
    needed: int


def score_free_spread(
    value: ArrayLike,
    seconds: ArrayLike,
    *,
    bins: int = 5,
    min_attempts: int = 8,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Spread:
    """Spread of seconds at equal value: W = median over bins of p90 / p10 of seconds.

    Bins are quantiles of the value, equal values in one bin (``value_bins``). Where
    ties leave fewer than ``bins`` bins with ``min_attempts``, finer ones are tried.

    Args:
      value: [attempts] score, gain or reward; only its order counts. NaN: a failure,
        which is left out.
      seconds: [attempts] of each attempt, above 0.
      bins: so many bins must have enough attempts.
      min_attempts: valid attempts that a bin needs.
      level: of the percentile bootstrap interval over attempts.
      resamples: of the bootstrap.
      seed: of the bootstrap.

    Raises:
      ValueError: shapes differ, an infinite value, seconds of a valid attempt that are
        not finite and above 0, or an option out of range.
    """
    bins = checks.count("bins", bins)
    min_attempts = checks.count("min_attempts", min_attempts, least=2)
    resamples = checks.count("resamples", resamples)
    seed = checks.count("seed", seed, least=0, most=2**63)
    if not 0 < checks.scalar("level", level) < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    values, times = _checked(value, seconds)
    count = len(values)
    overall = _spread(np.sort(times), 0.05) if count else math.nan
    correlation = _rank_correlation(values, times)
    fine = _bin_count(values, bins, min_attempts)
    if fine is None:
        more = _needed(values, bins, min_attempts)
        none = (math.nan, math.nan, math.nan, np.empty(0))
        return Spread(*none, overall, correlation, count, more)
    ratios = _ratios(values, times, fine, min_attempts)
    rng = np.random.default_rng(seed)
    draws = [_drawn(values, times, rng, fine, min_attempts) for _ in range(resamples)]
    tail = (1 - level) / 2
    low, high = np.nanquantile(draws, [tail, 1 - tail])
    middle = float(np.median(ratios))
    ends = (float(low), float(high))
    return Spread(middle, *ends, ratios, overall, correlation, count, 0)


def value_bins(
    value: Float[np.ndarray, " attempts"], bins: int
) -> Int[np.ndarray, " attempts"]:
    """Quantile bin of each value, ties together: floor(bins * share of lower values).

    Args:
      value: [attempts], finite.
      bins: number of bins; some are empty where many values are equal.

    Raises:
      ValueError: no value, one that is not finite, or ``bins`` below 1.
    """
    bins = checks.count("bins", bins)
    value = _floats("value", value)
    if value.ndim != 1 or not len(value) or not np.isfinite(value).all():
        raise ValueError("value must be finite numbers of one dimension, one at least")
    lower = np.searchsorted(np.sort(value), value, "left")
    return np.asarray(bins * lower // len(value))


def wasted_share(
    value: ArrayLike, seconds: ArrayLike, *, parent: ArrayLike | None = None
) -> float:
    """Share of seconds of attempts that neither set a new best nor led to one.

    Args:
      value: [attempts] in the order in which they were made; NaN: a failure.
      seconds: [attempts], at least 0.
      parent: [attempts] index of the attempt that each one improves on, below 0 where
        there is none; None: no attempt builds on another.

    Returns:
      In [0, 1]; NaN without any seconds.

    Raises:
      ValueError: shapes differ, seconds below 0 or not finite, or a parent that is not
        an earlier attempt.
    """
    values, times = _floats("value", value), _floats("seconds", seconds)
    if values.ndim != 1 or values.shape != times.shape:
        raise ValueError(f"value {values.shape} and seconds {times.shape} must match")
    if not (np.isfinite(times) & (times >= 0)).all():
        raise ValueError("seconds must be finite and at least 0")
    if not len(values) or not times.sum() > 0:
        return math.nan
    known = np.where(np.isnan(values), -np.inf, values)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(known)[:-1]])
    useful = known > before
    if parent is not None:
        parents = np.asarray(checks.integers("parent", parent))
        if parents.shape != values.shape or (parents >= np.arange(len(values))).any():
            raise ValueError("a parent must be the index of an earlier attempt")
        for at in range(len(values) - 1, -1, -1):
            if useful[at] and parents[at] >= 0:
                useful[parents[at]] = True
    return float(times[~useful].sum() / times.sum())


def _floats(name: str, x: ArrayLike) -> Float[np.ndarray, ...]:
    return np.asarray(checks.real(name, x), np.float64)


def _checked(
    value: ArrayLike, seconds: ArrayLike
) -> tuple[Float[np.ndarray, " valid"], Float[np.ndarray, " valid"]]:
    """Values and seconds of the valid attempts, sorted by value."""
    values, times = _floats("value", value), _floats("seconds", seconds)
    if values.ndim != 1 or values.shape != times.shape:
        raise ValueError(f"value {values.shape} and seconds {times.shape} must match")
    valid = ~np.isnan(values)
    values, times = values[valid], times[valid]
    if not np.isfinite(values).all():
        raise ValueError("values must be finite; NaN means a failure")
    if not (np.isfinite(times) & (times > 0)).all():
        raise ValueError("seconds of a valid attempt must be finite and above 0")
    order = np.argsort(values, kind="stable")
    return values[order], times[order]


def _ratios(
    value: Float[np.ndarray, " n"],
    seconds: Float[np.ndarray, " n"],
    count: int,
    least: int,
) -> Float[np.ndarray, " bins"]:
    """p90/p10 of seconds of each bin that has at least so many attempts."""
    place = value_bins(value, count)
    ordered = seconds[np.lexsort((seconds, place))]
    sizes = np.bincount(place, minlength=count)
    pairs = zip(sizes.tolist(), np.cumsum(sizes).tolist(), strict=True)
    return np.array(
        [_spread(ordered[end - n : end], 0.1) for n, end in pairs if n >= least]
    )


def _drawn(
    value: Float[np.ndarray, " n"],
    seconds: Float[np.ndarray, " n"],
    rng: np.random.Generator,
    count: int,
    least: int,
) -> float:
    """W of attempts drawn again; a bin may then have half of what it needs."""
    picked = rng.integers(len(value), size=len(value))
    found = _ratios(value[picked], seconds[picked], count, max(2, least // 2))
    return float(np.median(found)) if len(found) else math.nan


def _spread(ordered: Float[np.ndarray, " n"], tail: float) -> float:
    """Quantile 1 - tail over quantile tail of sorted numbers, as ``np.quantile``."""

    def quantile(share: float) -> float:
        at = share * (len(ordered) - 1)
        low = int(at)
        first = float(ordered[low])
        return first + (at - low) * (float(ordered[min(low + 1, last)]) - first)

    last = len(ordered) - 1
    return quantile(1 - tail) / quantile(tail)


def _counts(value: Float[np.ndarray, " n"], bins: int) -> Iterator[tuple[int, int]]:
    """(bins, attempts of the last bin that is needed), from coarse to fine."""
    for count in range(bins, max(bins, min(len(value), 40 * bins)) + 1):
        sizes = np.sort(np.bincount(value_bins(value, count), minlength=count))
        yield count, int(sizes[-bins])


def _bin_count(value: Float[np.ndarray, " n"], bins: int, least: int) -> int | None:
    """The coarsest division with enough bins of enough attempts."""
    if len(value) < bins * least:
        return None
    for count, size in _counts(value, bins):
        if size >= least:
            return count
    return None


def _needed(value: Float[np.ndarray, " n"], bins: int, least: int) -> int:
    """About how many more valid attempts W needs, if they come as those before."""
    have = len(value)
    if have < bins * least:
        return bins * least - have
    best = max(size for _, size in _counts(value, bins))
    # Too few different values: nobody knows; at least one more bin.
    return least if not best else math.ceil(have * least / best) - have


def _rank_correlation(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    """Spearman's; NaN where one of the two is constant."""
    if len(np.unique(a)) < 2 or len(np.unique(b)) < 2:
        return math.nan
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Mean ranks, up to a factor: equal numbers have one."""
    ordered = np.sort(x)
    left = np.searchsorted(ordered, x, "left")
    return np.asarray(left + np.searchsorted(ordered, x, "right"), float)
