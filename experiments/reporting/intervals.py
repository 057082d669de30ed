"""Bootstrap intervals, and what they can and cannot say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.reporting.runs import Floats

RESAMPLES = 4000
#: Below this number of seeds a result is called a hint.
MANY_SEEDS = 8


class Interval(NamedTuple):
    """An estimate with its bootstrap 95% interval; NaN bounds with one unit."""

    value: float
    low: float
    high: float


NONE = Interval(math.nan, math.nan, math.nan)


def bootstrap(
    samples: Sequence[np.ndarray], statistic: Callable[..., Floats]
) -> Interval:
    """Percentile bootstrap of independent samples (``scipy.stats.bootstrap``).

    Args:
        samples: one array a group; each is resampled by itself.
        statistic: of the groups, vectorised over ``axis``.
    """
    from scipy import stats

    value = float(statistic(*samples, axis=-1))
    if min(len(sample) for sample in samples) < 2:
        return Interval(value, math.nan, math.nan)
    result = stats.bootstrap(
        tuple(samples),
        statistic,
        n_resamples=RESAMPLES,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = result.confidence_interval
    return Interval(value, float(low), float(high))


def _mean(values: Floats, axis: int = -1) -> Floats:
    return np.asarray(values.mean(axis))


def _difference(a: Floats, b: Floats, axis: int = -1) -> Floats:
    return _mean(a, axis) - _mean(b, axis)


def mean_interval(values: Floats) -> Interval:
    """Mean of units, shape [n], and its interval."""
    return bootstrap([values], _mean) if len(values) else NONE


def difference_interval(a: Floats, b: Floats) -> Interval:
    """Difference of two groups' means and its interval."""
    return bootstrap([a, b], _difference) if len(a) and len(b) else NONE


def interval_note(units: Sequence[tuple[str, int]]) -> str:
    """What the intervals of a table can and cannot say.

    Args:
        units: what was resampled (``seeds`` or ``chains``) and how many of them, for
            each interval.
    """
    units = [(kind, count) for kind, count in units if count]
    out, seeds = [], [count for kind, count in units if kind == "seeds"]
    if seeds:
        low, high = min(seeds), max(seeds)
        text = f"{low}" if low == high else f"{low} to {high}"
        out.append(f"Intervals are percentile bootstraps over {text} seeds.")
        if low < MANY_SEEDS:
            out.append(
                "With so few seeds they are too narrow. For example, with three seeds "
                "the 95% interval of one arm is just the range of its seeds and covers "
                "the true value about 75% of the time."
            )
    if len(seeds) < len(units):
        where = " for tasks where" if seeds else ", because"
        out.append(
            f"Intervals are bootstraps over chains{where} an arm has fewer than three "
            "seeds. Chains of a run share a policy and a buffer, so the true intervals "
            "are wider."
        )
    return " ".join(out)
