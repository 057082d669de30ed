"""result.csv: one row per run, computed from its records."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.records.final import best_final, scored
from experiments.records.ledger import read
from experiments.records.phases import PHASES
from experiments.records.recorded import (
    ATTEMPTS,
    METRICS,
    answer_alone,
    by_step,
    is_repeat,
)
from experiments.records.texts import write_through

FIELDS = (
    "task",
    "arm",
    "seed",
    "status",
    "data",
    "steps",
    "attempts",
    "valid_share",
    "mean_reward",
    "mean_delta_s",
    "sum_delta_s",
    "reward_rate",
    "rho",
    "best_validation_score",
    "test_status",
    "test_place",
    "test_score",
    "medal",
    "above_median",
    "total_s",
    "attempt_s",
    "execution_s",
    *(f"{phase}_s" for phase in PHASES),
)

#: Ends the data of a run whose executions come from a table.
FROM_TABLE = "+table"

#: The private test is of a script that was the best before the run went on.
OUTDATED = "outdated"

Row = dict[str, Any]


def run_folder(folder: Path, task: str, arm: str, seed: int) -> Path:
    """Where a run of an experiment lives."""
    return folder / task / arm / f"seed-{seed}"


def empty_row(*, task: str, arm: str, seed: int, status: str, data: str) -> Row:
    """The row of a run of which nothing is known."""
    row: Row = dict.fromkeys(FIELDS) | {"steps": 0, "attempts": 0}
    return row | {
        "task": task,
        "arm": arm,
        "seed": seed,
        "status": status,
        "data": data,
    }


def row_of(
    folder: Path,
    *,
    task: str,
    arm: str,
    seed: int,
    status: str,
    data: str,
    clock: str = "attempt",
) -> Row:
    """A run's row, from its files; numbers that are not known are empty.

    ``reward_rate`` is the sum of rewards (without bonus or penalty) over the sum of
    seconds (``sum_delta_s``): what the run earned per second, on the rule's clock. A
    repeat earned nothing new and took the seconds of its answer alone. ``mean_delta_s``
    is of first runs; ``valid_share`` and ``mean_reward`` are of all attempts.

    Args:
        folder: of the run.
        task, arm, seed, status, data: go into the row as they are.
        clock: of the reward rule.

    Raises:
        LedgerError: a file of records is damaged.
    """
    row = empty_row(task=task, arm=arm, seed=seed, status=status, data=data)
    if not (folder / METRICS).exists():
        return row
    last, phases = None, dict.fromkeys(PHASES, 0.0)
    for _, last in read(folder / METRICS):
        for phase, seconds in last["seconds"].items():
            phases[phase] += seconds
    if last is None:
        return row
    row |= {
        "steps": last["step"] + 1,
        "attempts": last["attempts"],
        "rho": last["rho_next"],
        "best_validation_score": last["best_score"],
        "total_s": last["used"]["total"],
        "attempt_s": last["used"]["attempt"],
        "execution_s": last["used"]["execution"],
        **{f"{phase}_s": spent for phase, spent in phases.items()},
    }
    row |= _earned(folder, last["step"] + 1, clock=clock)
    return row | _tested(folder, last["best_score"])


def _earned(folder: Path, steps: int, *, clock: str) -> Row:
    """Columns that the attempts of the committed steps give."""
    known = valid = first = 0
    reward = value = seconds = spent = 0.0
    for step, located in by_step(folder / ATTEMPTS):
        if step >= steps:
            break
        for _, record in located:
            if record["delta_s"] is None:
                continue
            known += 1
            valid += record["valid"]
            reward += record["reward"]
            spent += answer_alone(record, clock=clock)["delta_s"]
            if not is_repeat(record):
                first += 1
                value += record["value"]
                seconds += record["delta_s"]
    if not known:
        return {}
    return {
        "valid_share": valid / known,
        "mean_reward": reward / known,
        "mean_delta_s": seconds / first if first else None,
        "sum_delta_s": spent,
        "reward_rate": value / spent if spent else None,
    }


def _tested(folder: Path, best_score: float | None) -> Row:
    """Columns that the private test gives.

    ``test_place`` is the tested script's place by validation score: 1, or more where
    better ones failed their test.
    """
    best, found = best_final(folder), scored(folder)
    if best is None or found is None:
        return {}
    if best["validation_score"] != best_score:
        return {"test_status": OUTDATED}
    final, place = found
    return {
        "test_status": final["status"],
        "test_place": place,
        "test_score": final["score"],
        "medal": final["medal"],
        "above_median": final["above_median"],
    }


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write the table whole, or leave the old one.

    Raises:
        OSError: the disk refuses.
    """
    text = io.StringIO()
    table = csv.DictWriter(text, FIELDS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_through(path, text.getvalue().encode("utf-8"))


def pooled_rate(rows: Sequence[Row]) -> float | None:
    """Reward per second of all runs' attempts together: sum over sum."""
    rows = [row for row in rows if row["reward_rate"] is not None]
    seconds = [float(row["sum_delta_s"]) for row in rows]
    earned = [
        float(row["reward_rate"]) * s for row, s in zip(rows, seconds, strict=True)
    ]
    return sum(earned) / sum(seconds) if sum(seconds) > 0 else None


def mean(rows: Sequence[Row], name: str) -> float | None:
    """Mean of a column over the rows that have it."""
    values = [row[name] for row in rows if row[name] is not None]
    return sum(map(float, values)) / len(values) if values else None
