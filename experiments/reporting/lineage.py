"""Which scripts a page shows: best ones with their ancestors, and some failures.

The rest is in attempts.csv (one line each) and in the runs' own folders.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from markupsafe import Markup

from experiments.records.ledger import read_at
from experiments.records.recorded import ATTEMPTS
from experiments.reporting import medals, texts
from experiments.reporting.runs import Experiment, RunRecords
from rpg_tasks.goal import Goal
from rpg_tasks.scores import oriented

MAX_SCRIPTS = 160
ANCESTORS = 5
FAILURES = 2
CHAINS = 10


@dataclasses.dataclass(frozen=True)
class Script:
    """One attempt as the page shows it; texts are escaped."""

    run_id: str
    anchor: str
    role: str
    record: dict[str, Any]
    test: dict[str, Any] | None
    code: Markup
    cut: str
    diff: Markup
    diff_note: str
    stdout: str
    stderr: str
    reason: str
    file: str


@dataclasses.dataclass(frozen=True)
class ChainRow:
    """One chain in the compact table."""

    chain: int
    attempts: int
    valid: int
    best: float
    seconds: float
    test: float


@dataclasses.dataclass(frozen=True)
class Story:
    """What the page shows of one run."""

    run: RunRecords
    scripts: list[Script]
    skipped: int  # ancestors between those shown
    chains: list[ChainRow]
    chains_left: int


@dataclasses.dataclass(frozen=True)
class Pick:
    """An attempt chosen to be shown: its row, and why."""

    row: int
    role: str
    priority: int


def best_row(run: RunRecords) -> int | None:
    """The row of the best score; the earliest of equals."""
    rows = np.flatnonzero(run.attempts.valid)
    if not len(rows):
        return None
    scores = [oriented(run.task, s) for s in run.attempts.score[rows].tolist()]
    return int(rows[int(np.argmax(scores))])


def ancestors(run: RunRecords, row: int) -> list[int]:
    """Rows of the parents, the nearest first; ends at a base prompt or a loop."""
    at = run.attempts
    place = {run_id: i for i, run_id in enumerate(at.run_id)}
    seen, found = {row}, []
    parent = at.parent[row]
    while parent is not None and parent in place and place[parent] not in seen:
        row = place[parent]
        seen.add(row)
        found.append(row)
        parent = at.parent[row]
    return found


def _failures(run: RunRecords) -> list[int]:
    """Late failures that ran, one a reason."""
    at, seen, rows = run.attempts, set(), []
    for row in range(len(at) - 1, -1, -1):
        if at.status[row] in ("failed", "invalid") and at.script[row]:
            reason = (at.status[row], str(at.reason[row])[:60])
            if reason not in seen:
                seen.add(reason)
                rows.append(row)
        if len(rows) == FAILURES:
            break
    return rows


def picks(run: RunRecords, *, main: bool) -> tuple[list[Pick], int]:
    """The rows to show of a run, and how many ancestors between them are left out.

    Args:
        run: one run.
        main: the task and arm's best seed, shown with ancestors and failures.
    """
    best = best_row(run)
    out, skipped = [], 0
    if best is not None:
        out.append(Pick(best, "best", 0))
        if main:
            line = ancestors(run, best)
            near = line[:ANCESTORS]
            first = line[-1:] if len(line) > ANCESTORS else []
            skipped = len(line) - len(near) - len(first)
            out += [Pick(row, "ancestor", 1) for row in near]
            out += [Pick(row, "first ancestor", 1) for row in first]
    if main:
        out += [Pick(row, "failure", 2) for row in _failures(run)]
    return out, skipped


def _test_records(run: RunRecords) -> dict[str, dict[str, Any]]:
    return {medals.attempt_of(record): record for record in medals.latest(run)}


def chain_rows(run: RunRecords) -> list[ChainRow]:
    """All chains of a run, the best score first; chains without one last."""
    at, valid, known = run.attempts, run.attempts.valid, run.attempts.known
    tests = {r.get("chain"): r.get("score") for r in medals.latest(run)}
    out = []
    for chain in np.unique(at.chain).tolist():
        rows = at.chain == chain
        scores = at.score[rows & valid].tolist()
        pick = max(scores, key=lambda s: oriented(run.task, s), default=math.nan)
        test = tests.get(chain)
        out.append(
            ChainRow(
                chain=chain,
                attempts=int(rows.sum()),
                valid=len(scores),
                best=pick,
                seconds=float(at.delta_s[rows & known].sum()),
                test=math.nan if test is None else float(test),
            )
        )
    return sorted(
        out,
        key=lambda r: (
            math.isnan(r.best),
            0.0 if math.isnan(r.best) else -oriented(run.task, r.best),
            r.chain,
        ),
    )


def _change(run: RunRecords, row: int, short: str) -> tuple[str, str]:
    """What an attempt changed in its parent's script, or why that is not shown."""
    at = run.attempts
    parent = at.parent[row]
    if parent is None:
        return "", "written from the base prompt"
    before = None
    if parent in at.run_id:
        before = texts.read_script(run.folder, at.script[at.run_id.index(parent)])
    if before is None:
        return "", "its parent's script is missing"
    diff = texts.difference(texts.cut(before)[0], short)
    return diff, "" if diff else "the same script as its parent's"


def _script(run: RunRecords, pick: Pick, tests: dict[str, dict[str, Any]]) -> Script:
    at, row = run.attempts, pick.row
    record = read_at(run.folder / ATTEMPTS, int(at.offset[row]))
    code = texts.read_script(run.folder, at.script[row])
    short, left = texts.cut(code) if code is not None else ("", "")
    if code is None:
        left = "its file is missing or unreadable" if at.script[row] else "no script"
    diff, note = _change(run, row, short)
    folder = run.folder.relative_to(run.root)
    name = run.root.resolve().name if folder.parts == () else f"{folder}"
    return Script(
        run_id=at.run_id[row],
        anchor=f"{run.task.short}-{run.arm}-{run.seed}-{row}",
        role=pick.role,
        record=record,
        test=tests.get(at.run_id[row]),
        code=texts.highlighted(short),
        cut=left,
        diff=texts.highlighted(diff, "diff"),
        diff_note=note,
        stdout=texts.tail(record.get("stdout")),
        stderr=texts.tail(record.get("stderr")),
        reason=texts.clean(str(record.get("reason") or "")),
        file=f"{name}/scripts/{at.script[row]}.py" if at.script[row] else "",
    )


def best_seed(runs: list[RunRecords]) -> RunRecords:
    """The run with the best score; the first of equals."""

    def score(run: RunRecords) -> float:
        row = best_row(run)
        if row is None:
            return -math.inf
        return oriented(run.task, float(run.attempts.score[row]))

    return max(runs, key=score)


def stories(experiment: Experiment) -> tuple[list[tuple[Goal, list[Story]]], int]:
    """What to show of every task, and how many scripts are shown in all."""
    chosen: list[tuple[int, int, RunRecords, Pick]] = []
    skipped: dict[int, int] = {}
    for task in experiment.tasks:
        for arm in experiment.arms(task):
            runs = experiment.of(task, arm)
            main = best_seed(runs)
            for run in runs:
                found, between = picks(run, main=run is main)
                skipped[id(run)] = between
                for order, pick in enumerate(found):
                    late = pick.priority if run is main else 3
                    chosen.append((late, order, run, pick))
    # The most useful first, in turns over the runs, until the page is full.
    chosen.sort(key=lambda entry: entry[:2])
    shown = chosen[:MAX_SCRIPTS]
    out = []
    for task in experiment.tasks:
        rows = []
        for run in (c for arm in experiment.arms(task)
                     for c in experiment.of(task, arm)):  # fmt: skip
            tests = _test_records(run)
            mine = [entry[3] for entry in shown if entry[2] is run]
            wanted = sum(entry[2] is run for entry in chosen)
            between = skipped[id(run)] + wanted - len(mine)
            chains = chain_rows(run)
            rows.append(
                Story(
                    run,
                    [_script(run, pick, tests) for pick in mine],
                    between,
                    chains[:CHAINS],
                    max(len(chains) - CHAINS, 0),
                )
            )
        out.append((task, rows))
    return out, len(shown)
