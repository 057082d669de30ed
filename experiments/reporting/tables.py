"""The paper's table, and ours by the same code."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rpg_tasks.goal import Goal
from rpg_tasks.registry import load_tasks


class Estimate(NamedTuple):
    """A mean over repetitions and its standard error (NaN with one)."""

    mean: float
    se: float


class Row(NamedTuple):
    """One task of the table."""

    task: Goal
    arm: Estimate
    vanilla: Estimate

    @property
    def improvement(self) -> float:
        """Of the arm over vanilla, per cent."""
        return improvement(self.task, self.arm.mean, self.vanilla.mean)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Improvements over tasks, per cent.

    Attributes:
        trimmed_mean: mean without the highest and the lowest row (the paper's figure);
            NaN with fewer than three rows.
        mean: of all rows.
        median: of all rows.
        wins: rows above 0.
        rows: number of rows.
    """

    trimmed_mean: float
    mean: float
    median: float
    wins: int
    rows: int


def repetitions(scores: Sequence[float]) -> Estimate:
    """Mean and standard error of one arm's final scores over repetitions."""
    values = np.asarray(scores, np.float64)
    if values.size == 0:
        raise ValueError("a mean needs at least one repetition")
    if values.size == 1:
        return Estimate(float(values[0]), math.nan)
    return Estimate(
        float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))
    )


def improvement(task: Goal, arm: float, vanilla: float) -> float:
    """sign (arm - vanilla) / |vanilla| * 100, sign -1 where lower is better.

    Returns:
        Per cent; NaN where vanilla's score is 0 and the arm's is not.
    """
    sign = 1.0 if task.higher_is_better else -1.0
    if vanilla == 0.0:
        return 0.0 if arm == 0.0 else math.nan
    return sign * (arm - vanilla) / abs(vanilla) * 100.0


def summarise(improvements: Sequence[float]) -> Summary:
    """Averages of a column of improvements, without rows that have no number."""
    values = np.sort([v for v in improvements if math.isfinite(v)])
    if values.size == 0:
        return Summary(math.nan, math.nan, math.nan, 0, 0)
    return Summary(
        trimmed_mean=float(values[1:-1].mean()) if values.size > 2 else math.nan,
        mean=float(values.mean()),
        median=float(np.median(values)),
        wins=int((values > 0).sum()),
        rows=int(values.size),
    )


def paper_rows() -> list[Row]:
    """The paper's table, from its printed means."""
    return [
        Row(
            task,
            Estimate(task.paper.rpg, task.paper.rpg_se),
            Estimate(task.paper.vanilla, task.paper.vanilla_se),
        )
        for task in load_tasks().values()
        if task.paper is not None
    ]


def paper_printed() -> Summary:
    """The averages of the improvements that the paper prints.

    Its printed means are rounded to three digits, so improvements recomputed from them
    (``paper_rows``) differ: 0.089 / 0.014 gives 535.7, 530.5 is printed.
    """
    papers = [task.paper for task in load_tasks().values()]
    return summarise([paper.improv_pct for paper in papers if paper is not None])
