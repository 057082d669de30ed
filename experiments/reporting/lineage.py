"""Which scripts a page shows: best ones with their ancestors, and some failures.

The rest lies in attempts.csv (one line each) and in the runs' own folders.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from markupsafe import Markup

from experiments.records.ledger import read_at
from experiments.records.recorded import ATTEMPTS
from experiments.reporting import medals, texts
from experiments.reporting.load import Cell, Experiment
from rpg_tasks.registry import Task
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
    """What the page shows of one cell."""

    cell: Cell
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


def best_row(cell: Cell) -> int | None:
    """The row of the best score; the earliest of equals."""
    rows = np.flatnonzero(cell.attempts.valid)
    if not len(rows):
        return None
    scores = [oriented(cell.task, s) for s in cell.attempts.score[rows].tolist()]
    return int(rows[int(np.argmax(scores))])


def ancestors(cell: Cell, row: int) -> list[int]:
    """Rows of the parents, the nearest first; ends at a base prompt or a loop."""
    at = cell.attempts
    place = {run_id: i for i, run_id in enumerate(at.run_id)}
    seen, found = {row}, []
    parent = at.parent[row]
    while parent is not None and parent in place and place[parent] not in seen:
        row = place[parent]
        seen.add(row)
        found.append(row)
        parent = at.parent[row]
    return found


def _failures(cell: Cell) -> list[int]:
    """Late failures that ran, one a reason."""
    at, seen, rows = cell.attempts, set(), []
    for row in range(len(at) - 1, -1, -1):
        if at.status[row] in ("failed", "invalid") and at.script[row]:
            reason = (at.status[row], str(at.reason[row])[:60])
            if reason not in seen:
                seen.add(reason)
                rows.append(row)
        if len(rows) == FAILURES:
            break
    return rows


def picks(cell: Cell, *, main: bool) -> tuple[list[Pick], int]:
    """The rows to show of a cell, and how many ancestors lie between them.

    Args:
        cell: one run.
        main: the task and arm's best seed, shown with ancestors and failures.
    """
    best = best_row(cell)
    out, skipped = [], 0
    if best is not None:
        out.append(Pick(best, "best", 0))
        if main:
            line = ancestors(cell, best)
            near = line[:ANCESTORS]
            first = line[-1:] if len(line) > ANCESTORS else []
            skipped = len(line) - len(near) - len(first)
            out += [Pick(row, "ancestor", 1) for row in near]
            out += [Pick(row, "first ancestor", 1) for row in first]
    if main:
        out += [Pick(row, "failure", 2) for row in _failures(cell)]
    return out, skipped


def _test_records(cell: Cell) -> dict[str, dict[str, Any]]:
    return {medals.attempt_of(record): record for record in medals.latest(cell)}


def chain_rows(cell: Cell) -> list[ChainRow]:
    """All chains of a cell, the best score first; chains without one last."""
    at, valid, known = cell.attempts, cell.attempts.valid, cell.attempts.known
    tests = {r.get("chain"): r.get("score") for r in medals.latest(cell)}
    out = []
    for chain in np.unique(at.chain).tolist():
        rows = at.chain == chain
        scores = at.score[rows & valid].tolist()
        pick = max(scores, key=lambda s: oriented(cell.task, s), default=math.nan)
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
            0.0 if math.isnan(r.best) else -oriented(cell.task, r.best),
            r.chain,
        ),
    )


def _script(cell: Cell, pick: Pick, tests: dict[str, dict[str, Any]]) -> Script:
    at, row = cell.attempts, pick.row
    record = read_at(cell.folder / ATTEMPTS, int(at.offset[row]))
    code = texts.read_script(cell.folder, at.script[row])
    short, left = texts.cut(code) if code is not None else ("", "")
    if code is None:
        left = "its file is missing or unreadable" if at.script[row] else "no script"
    diff, note = "", "written from the base prompt"
    if at.parent[row] is not None:
        parent = {name: i for i, name in enumerate(at.run_id)}.get(at.parent[row])
        before = None if parent is None else texts.read_script(
            cell.folder, at.script[parent]
        )  # fmt: skip
        if before is None:
            note = "its parent's script is not there"
        else:
            diff = texts.difference(texts.cut(before)[0], short)
            note = "" if diff else "the same script as its parent's"
    folder = cell.folder.relative_to(cell.root)
    name = cell.root.resolve().name if folder.parts == () else f"{folder}"
    return Script(
        run_id=at.run_id[row],
        anchor=f"{cell.task.short}-{cell.arm}-{cell.seed}-{row}",
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


def _best_seed(cells: list[Cell]) -> Cell:
    def score(cell: Cell) -> float:
        row = best_row(cell)
        if row is None:
            return -math.inf
        return oriented(cell.task, float(cell.attempts.score[row]))

    return max(cells, key=score)


def stories(experiment: Experiment) -> tuple[list[tuple[Task, list[Story]]], int]:
    """What to show of every task, and how many scripts are shown in all."""
    chosen: list[tuple[int, int, Cell, Pick]] = []
    skipped: dict[int, int] = {}
    for task in experiment.tasks:
        for arm in experiment.arms(task):
            cells = experiment.of(task, arm)
            main = _best_seed(cells)
            for cell in cells:
                found, between = picks(cell, main=cell is main)
                skipped[id(cell)] = between
                for order, pick in enumerate(found):
                    late = pick.priority if cell is main else 3
                    chosen.append((late, order, cell, pick))
    # The most telling first, in turns over the cells, until the page is full.
    chosen.sort(key=lambda entry: entry[:2])
    shown = chosen[:MAX_SCRIPTS]
    out = []
    for task in experiment.tasks:
        rows = []
        for cell in (c for arm in experiment.arms(task)
                     for c in experiment.of(task, arm)):  # fmt: skip
            tests = _test_records(cell)
            mine = [entry[3] for entry in shown if entry[2] is cell]
            wanted = sum(entry[2] is cell for entry in chosen)
            between = skipped[id(cell)] + wanted - len(mine)
            chains = chain_rows(cell)
            rows.append(
                Story(
                    cell,
                    [_script(cell, pick, tests) for pick in mine],
                    between,
                    chains[:CHAINS],
                    max(len(chains) - CHAINS, 0),
                )
            )
        out.append((task, rows))
    return out, len(shown)
