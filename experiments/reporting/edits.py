"""The edits that improved the best score most, as diffs of parent and child.

Of a task, the run with the best score is shown. First the edits on the path to its best
script, largest improvement over the parent first; then edits elsewhere in the run.
"""

from __future__ import annotations

import difflib
import math
from typing import NamedTuple

import numpy as np

from experiments.reporting import lineage, texts
from experiments.reporting.runs import Experiment, RunRecords
from rpg_tasks.goal import Goal

#: Edits shown of a task, and lines of one diff.
EDITS, LINES = 3, 60


class Edit(NamedTuple):
    """One attempt against its parent."""

    run: str  # TASK/ARM/seed-K
    parent: str
    child: str
    before: float  # score, metric units
    after: float
    seconds_before: float
    seconds_after: float
    on_path: bool
    diff: str  # unified, with file names; cleaned, not escaped
    cut: int  # lines of the diff that are left out

    @property
    def changed(self) -> list[str]:
        """Added and removed lines alone."""
        lines = self.diff.splitlines()[2:]
        return [line for line in lines if line[:1] in ("+", "-")]


def improvements(run: RunRecords) -> list[tuple[int, int, bool]]:
    """(parent's row, child's row, on the path to the best), the best first."""
    at = run.attempts
    best = lineage.best_row(run)
    if best is None:
        return []
    path = {best, *lineage.ancestors(run, best)}
    place = {run_id: i for i, run_id in enumerate(at.run_id)}
    sign = 1.0 if run.task.higher_is_better else -1.0
    found = []
    for child in np.flatnonzero(at.valid & ~at.repeat).tolist():
        parent = place.get(at.parent[child] or "")
        if parent is None or not at.valid[parent]:
            continue
        gain = sign * float(at.score[child] - at.score[parent])
        if gain > 0 and at.script[child] != at.script[parent]:
            found.append((child not in path, -gain, child, parent))
    return [(parent, child, not off) for off, _, child, parent in sorted(found)]


def best_edits(experiment: Experiment, task: Goal, most: int = EDITS) -> list[Edit]:
    """The edits of a task's best run; fewer where fewer improved on their parents."""
    runs = [run for arm in experiment.arms(task) for run in experiment.of(task, arm)]
    out: list[Edit] = []
    seen: set[tuple[str, ...]] = set()
    run = lineage.best_seed(runs)
    for parent, child, on_path in improvements(run):
        edit = _edit(run, parent, child, on_path=on_path)
        if edit is not None and tuple(edit.changed) not in seen:
            seen.add(tuple(edit.changed))
            out.append(edit)
        if len(out) == most:
            break
    return out


def _edit(run: RunRecords, parent: int, child: int, *, on_path: bool) -> Edit | None:
    at = run.attempts
    old, new = (texts.read_script(run.folder, at.script[r]) for r in (parent, child))
    if old is None or new is None:
        return None
    lines = list(
        difflib.unified_diff(
            old.splitlines(),
            new.splitlines(),
            at.run_id[parent],
            at.run_id[child],
            lineterm="",
            n=1,
        )
    )
    if not lines:
        return None
    shown = [line[:400] for line in lines[:LINES]]
    return Edit(
        run=run.name,
        parent=at.run_id[parent],
        child=at.run_id[child],
        before=float(at.score[parent]),
        after=float(at.score[child]),
        seconds_before=_seconds(run, parent),
        seconds_after=_seconds(run, child),
        on_path=on_path,
        diff="".join(f"{line}\n" for line in shown),
        cut=len(lines) - len(shown),
    )


def _seconds(run: RunRecords, row: int) -> float:
    value = float(run.attempts.execution_s[row])
    return value if math.isfinite(value) else math.nan
