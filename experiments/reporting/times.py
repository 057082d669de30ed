"""Where time went: loading and compiling, and each phase of the runs, apart."""

from __future__ import annotations

import numpy as np

from experiments.records.overheads import read_overheads
from experiments.records.phases import PHASES
from experiments.reporting.runs import Experiment
from experiments.reporting.sheet import Column, Row, Sheet, number, text_column

#: The phases as a reader calls them.
NAMES = {"sample": "sampling", "execute": "scripts", "grade": "grading"}


def overheads(experiment: Experiment) -> str:
    """Loading and compiling, in words."""
    known = [one for root in experiment.roots if (one := read_overheads(root))]
    if not known:
        return "Seconds of loading and compiling are not on record."
    loading, compiling = (
        sum(one[name] for one in known) for name in ("loading_s", "compiled_s")
    )
    return (
        f"Loading (model, data): {number(loading)} s; compiling: {number(compiling)} "
        "s. Both are of all runs together, and on no run's clock."
    )


def time_sheet(experiment: Experiment) -> Sheet:
    """Seconds of a run by phase, mean over seeds."""
    rows: list[Row] = []
    for task in experiment.tasks:
        for arm in experiment.arms(task):
            runs = [run for run in experiment.of(task, arm) if run.steps]
            row: Row = {"task": task.short, "arm": arm}
            for phase in PHASES:
                spent = [float(run.metrics[f"{phase}_s"].sum()) for run in runs]
                row[f"{phase}_s"] = float(np.mean(spent)) if spent else np.nan
            row["whole_s"] = sum(row[f"{phase}_s"] for phase in PHASES)
            rows.append(row)

    def column(phase: str) -> Column:
        name = NAMES.get(phase, phase)
        return Column(name, lambda r: number(r[f"{phase}_s"]))

    return Sheet(
        "times",
        "Where time went: seconds of a run",
        (
            text_column("task"),
            text_column("arm"),
            *map(column, PHASES),
            Column("all", lambda r: number(r["whole_s"])),
        ),
        rows,
        note=f"Means over seeds, without compilation. {overheads(experiment)}",
    )
