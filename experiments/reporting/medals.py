"""The private test, which only the report uses: scores, medals, the median.

The best script of a run, or of each of its chains, was run once more on the
competition's own test rows. No prompt and no reward used their answers (with
``reward_split=test``, as in the paper, the reward did; the report says so).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.records.final import scored_of
from experiments.reporting import tables
from experiments.reporting.runs import Experiment, Floats, RunRecords
from rpg_tasks.goal import Goal
from rpg_tasks.scores import above_median, medal

MEDALS = ("gold", "silver", "bronze")


def attempt_of(record: dict[str, Any]) -> str:
    """run_id of the attempt whose script was scored."""
    return str(record.get("of") or record["run_id"])


def latest(run: RunRecords) -> list[dict[str, Any]]:
    """The tests that count: one of a run, or one of each of its chains.

    A later record takes the place of what it retries; a run that went on with a larger
    budget may have found a better script. A run's test is that of ``scored_of``: where
    the best script failed it, a script that stands in. A stand-in is no chain's test.
    """
    scripts = list({attempt_of(record): record for record in run.final}.values())
    own = [record for record in scripts if not record.get("instead_of")]
    if all(record.get("best") for record in own):
        found = scored_of(run.final)
        return [] if found is None else [found[0]]
    in_turn = [*(record for record in scripts if record.get("instead_of")), *own]
    return list({record["chain"]: record for record in in_turn}.values())


def scores(run: RunRecords) -> Floats:
    """Test scores of the scripts that got one."""
    values = [record.get("score") for record in latest(run)]
    return np.array([v for v in values if v is not None], np.float64)


def test_score(runs: Sequence[RunRecords]) -> tables.Estimate:
    """Mean over seeds of the mean over scripts, and the error between seeds."""
    means = [float(s.mean()) for run in runs if len(s := scores(run))]
    return tables.repetitions(means) if means else tables.Estimate(math.nan, math.nan)


def count(task: Goal, runs: Sequence[RunRecords]) -> dict[str, int]:
    """Scripts run, scripts with a score, and how many reached each threshold.

    Thresholds are the task's own, of the real leaderboard; a gold medal is no silver
    one.
    """
    out = dict.fromkeys(("scripts", "scored", *MEDALS, "above_median"), 0)
    for run in runs:
        out["scripts"] += len(latest(run))
        for score in scores(run).tolist():
            out["scored"] += 1
            won = medal(task, score)
            if won:
                out[won] += 1
            out["above_median"] += above_median(task, score)
    return out


def any_scored(experiment: Experiment) -> bool:
    """Whether a private test was scored at all."""
    return any(run.final for run in experiment.runs)
