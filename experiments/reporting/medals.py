"""The private test, scored for the report alone: scores, medals, the median.

The best script of a run, or of each of its chains, was run once more on the
competition's own rows, against answers that no prompt and no reward has seen (with
``reward_split=test``, as in the paper, the reward has; the report says so).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.reporting import tables
from experiments.reporting.load import Cell, Experiment
from rpg_tasks.registry import Task
from rpg_tasks.scores import above_median, medal

MEDALS = ("gold", "silver", "bronze")


def attempt_of(record: dict[str, Any]) -> str:
    """run_id of the attempt whose script was scored."""
    return record.get("of") or record["run_id"]


def latest(cell: Cell) -> list[dict[str, Any]]:
    """One record a script, and one script a run or a chain: the last that was best.

    A later record takes the place of what it retries; a run that went on with a larger
    budget may have found a better script.
    """
    scripts = list({attempt_of(record): record for record in cell.final}.values())
    if all(record.get("best") for record in scripts):
        return scripts[-1:]
    return list({record["chain"]: record for record in scripts}.values())


def scores(cell: Cell) -> np.ndarray:
    """Test scores of the scripts that got one."""
    values = [record.get("score") for record in latest(cell)]
    return np.array([v for v in values if v is not None], np.float64)


def test_score(cells: Sequence[Cell]) -> tables.Cell:
    """Mean over seeds of the mean over scripts, and the error between seeds."""
    means = [float(s.mean()) for cell in cells if len(s := scores(cell))]
    return tables.repetitions(means) if means else tables.Cell(math.nan, math.nan)


def count(task: Task, cells: Sequence[Cell]) -> dict[str, int]:
    """Scripts run, scripts with a score, and how many reached each threshold.

    Thresholds are the task's own, of the real leaderboard; a gold medal is no silver
    one.
    """
    out = dict.fromkeys(("scripts", "scored", *MEDALS, "above_median"), 0)
    for cell in cells:
        out["scripts"] += len(latest(cell))
        for score in scores(cell).tolist():
            out["scored"] += 1
            won = medal(task, score)
            if won:
                out[won] += 1
            out["above_median"] += above_median(task, score)
    return out


def any_scored(experiment: Experiment) -> bool:
    """Whether a private test was scored at all."""
    return any(cell.final for cell in experiment.cells)
