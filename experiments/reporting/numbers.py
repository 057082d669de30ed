"""What a cell and an arm earned: plain statistics of their attempts.

A number of an arm is the mean over its seeds of each seed's own number, with the
standard error between seeds. Attempts that the machinery lost count nowhere.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.config.reward_rule import RewardRule
from experiments.records.rewards import charged_seconds
from experiments.reporting import tables
from experiments.reporting.load import STATUSES, Cell, Experiment
from rpg_tasks.registry import Task
from rpg_tasks.scores import oriented

RESAMPLES = 4000
#: With fewer seeds than this, intervals are over chains.
ENOUGH_SEEDS = 3


class Interval(NamedTuple):
    """An estimate with its bootstrap 95% interval; NaN bounds with one unit."""

    value: float
    low: float
    high: float


class Units(NamedTuple):
    """What is resampled: one (reward, seconds) sum a seed, or a chain."""

    reward: np.ndarray  # [n]
    seconds: np.ndarray  # [n]
    kind: str  # "seeds" | "chains"


def thirds(steps: int) -> tuple[range, range] | None:
    """The first and the last third of the steps, None with fewer than three."""
    third = steps // 3
    if third < 1:
        return None
    return range(third), range(steps - third, steps)


def in_steps(cell: Cell, steps: range) -> np.ndarray:
    """Which attempts are known and of these steps, bool [attempts]."""
    at = cell.attempts
    return at.known & (at.step >= steps.start) & (at.step < steps.stop)


def statistics(cell: Cell) -> dict[str, float]:
    """The numbers of one cell.

    Returns:
        ``attempts``, the share of each status, ``valid_share`` (of attempts that the
        machinery did not lose), ``score_valid`` (mean score given valid),
        ``best_score``, ``seconds_mean``, ``seconds_median`` and ``seconds_p95`` on the
        rule's clock, ``execution_mean``, ``generation_mean``, ``rate`` (sum of rewards
        without penalty or bonus over sum of seconds) and ``rate_last_third``.
    """
    at, known, valid = cell.attempts, cell.attempts.known, cell.attempts.valid
    out = {"attempts": float(len(at)), "steps": float(cell.steps)}
    for status in STATUSES:
        out[f"share_{status}"] = at.status.count(status) / len(at)
    scores = at.score[valid]
    best = math.nan
    if len(scores):
        pick = np.argmax([oriented(cell.task, s) for s in scores.tolist()])
        best = float(scores[pick])
    seconds = at.delta_s[known]
    some = len(seconds) > 0
    last = thirds(cell.steps)
    return out | {
        "valid_share": float(valid[known].mean()) if some else math.nan,
        "score_valid": float(scores.mean()) if len(scores) else math.nan,
        "best_score": best,
        "seconds_mean": float(seconds.mean()) if some else math.nan,
        "seconds_median": float(np.median(seconds)) if some else math.nan,
        "seconds_p95": float(np.percentile(seconds, 95)) if some else math.nan,
        "execution_mean": float(at.execution_s[known].mean()) if some else math.nan,
        "generation_mean": float(at.generation_s[known].mean()) if some else math.nan,
        "rate": _rate(cell, known),
        "rate_last_third": _rate(cell, in_steps(cell, last[1])) if last else math.nan,
    }


def _rate(cell: Cell, rows: np.ndarray) -> float:
    seconds = cell.attempts.delta_s[rows].sum()
    return float(cell.attempts.value[rows].sum() / seconds) if seconds > 0 else math.nan


def over_seeds(cells: Sequence[Cell]) -> dict[str, tables.Cell]:
    """Mean and standard error over seeds of each of ``statistics``.

    A seed without a number (no valid attempt: no score) is left out of that number.
    """
    each = [statistics(cell) for cell in cells]
    out = {}
    for name in each[0]:
        values = [row[name] for row in each if math.isfinite(row[name])]
        out[name] = (
            tables.repetitions(values) if values else tables.Cell(math.nan, math.nan)
        )
    return out


def unit_kind(experiment: Experiment, task: Task) -> str:
    """``seeds`` if every arm of the task has enough of them, else ``chains``."""
    fewest = min(len(experiment.of(task, arm)) for arm in experiment.arms(task))
    return "seeds" if fewest >= ENOUGH_SEEDS else "chains"


def units(cells: Sequence[Cell], kind: str) -> Units:
    """Sums of reward and of seconds (rule's clock) of each seed, or of each chain."""
    reward, seconds = [], []
    for cell in cells:
        at, known = cell.attempts, cell.attempts.known
        groups = at.chain if kind == "chains" else np.zeros(len(at), np.int64)
        for group in np.unique(groups[known]):
            rows = known & (groups == group)
            reward.append(at.value[rows].sum())
            seconds.append(at.delta_s[rows].sum())
    return Units(np.array(reward), np.array(seconds), kind)


def rate_interval(one: Units) -> Interval:
    """sum of rewards / sum of seconds, units resampled."""
    return _bootstrap([one], lambda rates: rates[0])


def rate_difference(a: Units, b: Units) -> Interval:
    """Rate of a minus rate of b, units of both resampled."""
    return _bootstrap([a, b], lambda rates: rates[0] - rates[1])


def _bootstrap(groups: Sequence[Units], combine: Callable) -> Interval:
    def rate(group: Units, index: np.ndarray, axis: int) -> np.ndarray:
        index = index.astype(np.int64)
        return group.reward[index].sum(axis) / group.seconds[index].sum(axis)

    def statistic(*indices: np.ndarray, axis: int = -1) -> np.ndarray:
        pairs = zip(groups, indices, strict=True)
        return combine([rate(group, index, axis) for group, index in pairs])

    if any(len(g.seconds) == 0 or g.seconds.sum() <= 0 for g in groups):
        return Interval(math.nan, math.nan, math.nan)
    # Units without any time would divide 0 by 0 when drawn alone.
    groups = [Units(g.reward[g.seconds > 0], g.seconds[g.seconds > 0], g.kind)
              for g in groups]  # fmt: skip
    indices = [np.arange(len(g.seconds)) for g in groups]
    return bootstrap(indices, statistic)


def bootstrap(samples: Sequence[np.ndarray], statistic: Callable) -> Interval:
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


def mean_interval(values: np.ndarray) -> Interval:
    """Mean of units and its interval."""
    if len(values) == 0:
        return Interval(math.nan, math.nan, math.nan)
    return bootstrap([values], lambda x, axis=-1: x.mean(axis))


def difference_interval(a: np.ndarray, b: np.ndarray) -> Interval:
    """Difference of two groups' means and its interval."""
    if len(a) == 0 or len(b) == 0:
        return Interval(math.nan, math.nan, math.nan)
    return bootstrap([a, b], lambda x, y, axis=-1: x.mean(axis) - y.mean(axis))


def interval_note(units: Sequence[tuple[str, int]]) -> str:
    """What the intervals can and cannot say.

    Args:
        units: what was resampled and how many of them, for each interval.
    """
    units = [(kind, count) for kind, count in units if count]
    out, seeds = [], [count for kind, count in units if kind == "seeds"]
    if seeds:
        low, high = min(seeds), max(seeds)
        text = f"{low}" if low == high else f"{low} to {high}"
        out.append(f"Intervals are percentile bootstraps over {text} seeds.")
        if low < 8:
            out.append(
                "So few make them too narrow: of three seeds the interval of one arm "
                "is their range, which holds the truth about three times in four; that "
                "of a difference of arms is narrower than the seeds' differences."
            )
    if len(seeds) < len(units):
        where = " in tasks where" if seeds else ", as"
        out.append(
            f"Intervals are bootstraps over chains{where} an arm has fewer than three "
            "seeds. Chains of a run share a policy and a buffer, so the true intervals "
            "are wider."
        )
    return " ".join(out)


def rule_of(cell: Cell) -> RewardRule:
    """The protocol's reward rule as its config.json has it."""
    rule = cell.config.get("protocol", {})
    rule = rule.get("rule", {}) if isinstance(rule, dict) else {}
    known = {field.name for field in dataclasses.fields(RewardRule)}
    return RewardRule(**{k: v for k, v in rule.items() if k in known})


def relative_rewards(cell: Cell, price: float) -> np.ndarray:
    """reward - price * charged seconds, shape [attempts]; NaN for lost attempts.

    Failures are charged by the protocol's rule, whatever the arm's own charge, so that
    arms can be compared.
    """
    at, rule = cell.attempts, rule_of(cell)
    limit = float(cell.config.get("limit_s") or 0.0)
    out = np.full(len(at), math.nan)
    valid, known = at.valid, at.known
    for step in np.unique(at.step):
        rows = known & (at.step == step)
        charged = charged_seconds(rule, at.delta_s[rows], valid[rows], limit)
        out[rows] = at.reward[rows] - price * charged
    return out
