"""Is the policy learning? The last third of the steps against the first.

Relative rewards are recomputed with one price per task, the same for every arm and
every step. With its own price, which grows as it improves, an arm's mean would fall.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from experiments.reporting import intervals, numbers
from experiments.reporting.curves import Curve
from experiments.reporting.intervals import Interval
from experiments.reporting.runs import Experiment, Floats, RunRecords
from rpg_tasks.goal import Goal

SEARCH_ONLY = "search-only"
TOO_FEW_STEPS = "fewer than three steps"


@dataclasses.dataclass(frozen=True)
class Price:
    """The one price of a second for a task, and where it comes from."""

    value: float
    source: str


@dataclasses.dataclass(frozen=True)
class Check:
    """One arm of one task.

    Attributes:
        task: the task.
        arm: name.
        price: of a second.
        first: mean relative reward in the first third of the steps.
        last: in the last third.
        change: last - first, with its interval.
        beyond_search: change - search-only's change; None without that arm.
        kind: what is resampled, ``seeds`` or ``chains``.
        count: how many of them.
        why: why there is no number, if there is none.
    """

    task: Goal
    arm: str
    price: Price
    first: float
    last: float
    change: Interval
    beyond_search: Interval | None
    kind: str
    count: int
    why: str = ""


def price_of(experiment: Experiment, task: Goal) -> Price:
    """The mean over seeds of the arm rpg's last rate; without rpg, of all arms'."""
    arms = experiment.arms(task)
    chosen = ["rpg"] if "rpg" in arms else arms
    rates = [
        float(run.metrics["rho_next"][-1])
        for arm in chosen
        for run in experiment.of(task, arm)
        if run.steps and math.isfinite(run.metrics["rho_next"][-1])
    ]
    if rates:
        whose, runs = ("rpg", "seeds") if chosen == ["rpg"] else ("all arms", "runs")
        count = "1 seed" if len(rates) == 1 else f"mean of {len(rates)} {runs}"
        return Price(
            float(np.mean(rates)), f"last estimated reward rate of {whose}, {count}"
        )
    return Price(0.0, "no step is finished: seconds cost nothing")


def _units(runs: Sequence[RunRecords], price: float, kind: str) -> Floats:
    """(first, last) mean relative reward of each unit, shape [units, 2]."""
    out = []
    for run in runs:
        parts = numbers.thirds(run.steps)
        if parts is None:
            continue
        relative = numbers.relative_rewards(run, price)
        groups = run.attempts.chain if kind == "chains" else np.zeros(len(relative))
        rows = [numbers.in_steps(run, part) for part in parts]
        for group in np.unique(groups):
            pair = [relative[r & (groups == group)] for r in rows]
            if all(len(values) for values in pair):
                out.append([values.mean() for values in pair])
    return np.array(out).reshape(-1, 2)


def checks(experiment: Experiment, task: Goal) -> list[Check]:
    """Every arm of a task."""
    price = price_of(experiment, task)
    kind = numbers.unit_kind(experiment, task)
    units = {
        arm: _units(experiment.of(task, arm), price.value, kind)
        for arm in experiment.arms(task)
    }
    search = units.get(SEARCH_ONLY)
    out = []
    for arm, pairs in units.items():
        change = pairs[:, 1] - pairs[:, 0]
        beyond = None
        if search is not None and arm != SEARCH_ONLY:
            other = search[:, 1] - search[:, 0]
            beyond = intervals.difference_interval(change, other)
        some = len(pairs) > 0
        out.append(
            Check(
                task=task,
                arm=arm,
                price=price,
                first=float(pairs[:, 0].mean()) if some else math.nan,
                last=float(pairs[:, 1].mean()) if some else math.nan,
                change=intervals.mean_interval(change),
                beyond_search=beyond,
                kind=kind,
                count=len(pairs),
                why="" if some else TOO_FEW_STEPS,
            )
        )
    return out


def by_step(
    runs: Sequence[RunRecords], column: str, price: float, *, window: int = 1
) -> Curve:
    """Mean over seeds of each step's mean, and the error between seeds.

    Args:
        runs: the seeds of an arm.
        column: ``relative``, ``valid`` or ``seconds``.
        price: of a second, for ``relative``.
        window: each seed's means are averaged over so many steps, backwards.

    Returns:
        Over the steps that all seeds have finished, counted from 1.
    """
    steps = min((run.steps for run in runs), default=0)
    rows = np.full((len(runs), steps), math.nan)
    for i, run in enumerate(runs):
        at = run.attempts
        if column == "relative":
            values = numbers.relative_rewards(run, price)
        else:
            values = at.valid.astype(float) if column == "valid" else at.delta_s
        keep = at.known & (at.step < steps)
        step = at.step[keep]
        total = _trailing(np.bincount(step, values[keep], steps), window)
        count = _trailing(np.bincount(step, minlength=steps), window)
        rows[i] = np.where(count > 0, total / np.maximum(count, 1), math.nan)
    whole = ~np.isnan(rows).any(axis=0)
    rows = rows[:, whole]
    error: Floats = np.full(rows.shape[1], math.nan)
    if len(runs) > 1:
        error = np.asarray(rows.std(axis=0, ddof=1) / math.sqrt(len(runs)))
    mean = np.asarray(rows.mean(axis=0) if len(runs) else [], np.float64)
    return Curve(1.0 + np.flatnonzero(whole).astype(np.float64), mean, error)


def _trailing(values: np.ndarray, window: int) -> Floats:
    """Sums over so many entries, fewer at the start."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    return np.asarray(total[end] - total[np.maximum(end - window, 0)])
