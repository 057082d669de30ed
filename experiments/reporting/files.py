"""The files of a report that are no figures: the page, tables, points, attempts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.reporting import budget, facts
from experiments.reporting.budget import BudgetUse
from experiments.reporting.runs import Experiment
from experiments.reporting.sheet import Row, Sheet, write_csv

_COLUMNS = ("run_id", "step", "chain", "parent", "status", "reason", "score", "reward",
            "value", "delta_s", "execution_s", "generation_s", "script")  # fmt: skip
ATTEMPT_FIELDS = (
    "run_id", "task", "arm", "seed", "step", "chain", "parent", "status", "reason",
    "score", "reward", "value", "delta_s", "execution_s", "generation_s", "script",
)  # fmt: skip


def write(path: Path, text: str) -> Path:
    """Write a text whole or not at all: a page may be open in a browser."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    return path


def write_tables(
    folder: Path, experiment: Experiment, headline: str, sheets: Sequence[Sheet]
) -> list[Path]:
    """Each table as CSV, all of them as tables.md, every attempt in attempts.csv."""
    written = [sheet.write_csv(folder / f"{sheet.name}.csv") for sheet in sheets]
    parts = [headline, *facts.cautions(experiment)]
    if experiment.unfinished:
        parts.append("\n".join(f"- {line}" for line in experiment.unfinished))
    parts += [sheet.markdown() for sheet in sheets]
    written.append(write(folder / "tables.md", "\n\n".join(parts)))
    write_csv(folder / "attempts.csv", ATTEMPT_FIELDS, _attempts(experiment))
    return [*written, folder / "attempts.csv"]


def write_curves(folder: Path, clocks: Iterable[Sequence[BudgetUse]]) -> Path:
    """The points of the budget curves of all clocks."""
    rows = (row for found in clocks for one in found for row in budget.rows(one))
    write_csv(folder / "curves.csv", budget.CURVE_FIELDS, rows)
    return folder / "curves.csv"


def _attempts(experiment: Experiment) -> Iterable[Row]:
    for run in experiment.runs:
        names = {"task": run.task.short, "arm": run.arm, "seed": run.seed}
        for i in range(len(run.attempts)):
            row = {n: _plain(getattr(run.attempts, n)[i]) for n in _COLUMNS}
            yield row | names


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
