"""Is the policy learning? The last third of the steps against the first.

Relative rewards are recomputed with one price per task, the same for every arm and
every step: with its own, growing price an arm's mean would fall while it improves.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from experiments.reporting import numbers
from experiments.reporting.curves import Curve
from experiments.reporting.load import Cell, Experiment
from experiments.reporting.numbers import Interval
from rpg_tasks.registry import Task

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

    task: Task
    arm: str
    price: Price
    first: float
    last: float
    change: Interval
    beyond_search: Interval | None
    kind: str
    count: int
    why: str = ""


def price_of(experiment: Experiment, task: Task) -> Price:
    """The mean over seeds of the arm rpg's last rho; without it, of all arms'."""
    arms = experiment.arms(task)
    chosen = ["rpg"] if "rpg" in arms else arms
    rates = [
        float(cell.metrics["rho_next"][-1])
        for arm in chosen
        for cell in experiment.of(task, arm)
        if cell.steps and math.isfinite(cell.metrics["rho_next"][-1])
    ]
    if rates:
        whose = "rpg" if chosen == ["rpg"] else "all arms"
        seeds = "1 seed" if len(rates) == 1 else f"mean of {len(rates)} seeds"
        if whose != "rpg":
            seeds = f"mean of {len(rates)} runs"
        return Price(float(np.mean(rates)), f"last rho of {whose}, {seeds}")
    return Price(0.0, "no step is committed: seconds are free")


def _units(cells: Sequence[Cell], price: float, kind: str) -> np.ndarray:
    """(first, last) mean relative reward of each unit, shape [units, 2]."""
    out = []
    for cell in cells:
        parts = numbers.thirds(cell.steps)
        if parts is None:
            continue
        relative = numbers.relative_rewards(cell, price)
        groups = cell.attempts.chain if kind == "chains" else np.zeros(len(relative))
        rows = [numbers.in_steps(cell, part) for part in parts]
        for group in np.unique(groups):
            pair = [relative[r & (groups == group)] for r in rows]
            if all(len(values) for values in pair):
                out.append([values.mean() for values in pair])
    return np.array(out).reshape(-1, 2)


def checks(experiment: Experiment, task: Task) -> list[Check]:
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
            beyond = numbers.difference_interval(change, other)
        some = len(pairs) > 0
        out.append(
            Check(
                task=task,
                arm=arm,
                price=price,
                first=float(pairs[:, 0].mean()) if some else math.nan,
                last=float(pairs[:, 1].mean()) if some else math.nan,
                change=numbers.mean_interval(change),
                beyond_search=beyond,
                kind=kind,
                count=len(pairs),
                why="" if some else TOO_FEW_STEPS,
            )
        )
    return out


def by_step(
    cells: Sequence[Cell], column: str, price: float, *, window: int = 1
) -> Curve:
    """Mean over seeds of each step's mean, and the error between seeds.

    Args:
        cells: the seeds of an arm.
        column: ``relative``, ``valid`` or ``seconds``.
        price: of a second, for ``relative``.
        window: each seed's means are averaged over so many steps, backwards.

    Returns:
        Over the steps that all seeds have committed, counted from 1.
    """
    steps = min((cell.steps for cell in cells), default=0)
    rows = np.full((len(cells), steps), math.nan)
    for i, cell in enumerate(cells):
        at = cell.attempts
        if column == "relative":
            values = numbers.relative_rewards(cell, price)
        else:
            values = at.valid.astype(float) if column == "valid" else at.delta_s
        keep = at.known & (at.step < steps)
        total = np.bincount(at.step[keep], values[keep], steps)
        count = np.bincount(at.step[keep], minlength=steps)
        total, count = _trailing(total, window), _trailing(count, window)
        rows[i] = np.where(count > 0, total / np.maximum(count, 1), math.nan)
    whole = ~np.isnan(rows).any(axis=0)
    rows = rows[:, whole]
    error = np.full(rows.shape[1], math.nan)
    if len(cells) > 1:
        error = rows.std(axis=0, ddof=1) / math.sqrt(len(cells))
    mean = rows.mean(axis=0) if len(cells) else np.zeros(0)
    return Curve(np.flatnonzero(whole) + 1.0, mean, error)


def _trailing(values: np.ndarray, window: int) -> np.ndarray:
    """Sums over so many entries, fewer at the start."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    return total[end] - total[np.maximum(end - window, 0)]
