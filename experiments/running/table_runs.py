"""Hooks that take executions from a table; what it lacks runs for real."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from experiments.config.settings import Settings
from experiments.loop.hooks import Hooks
from experiments.loop.repeats import program_digest
from experiments.records.executions import Executions, Row
from experiments.records.rundir import machine, versions
from rpg_tasks.grading import Grade
from rpg_tasks.prepare import TaskData
from sandbox_exec.limits import Limits
from sandbox_exec.protocol import RunRecord, ScriptPool, SlotUse

_VERSION = 1
_TEXT = 2000  # characters kept of what a script printed
_WAITING = 64  # scripts that may wait for a slot or for another process
_KEPT = (
    *("status", "exit_code", "term_signal", "killed_by", "error", "delta_s", "cpu_s"),
    *("cpu_source", "peak_rss_bytes", "started_at", "submission", "isolation"),
)


def open_table(
    settings: Settings, data: TaskData, limits: Limits, pool: ScriptPool, split: str
) -> Executions:
    """The table of a task, below the folder that the settings name.

    Raises:
        UsageError: its rows were measured under other conditions.
        LedgerError: it cannot be written.
    """
    assert settings.virtual is not None
    folder = Path(settings.virtual.table) / data.task.short
    answers = data.answers if split == "validation" else data.test_answers
    facts = {
        "version": _VERSION,
        "task": data.task.short,
        "source": data.source,
        "size": data.size,
        "split": split,
        "answers_sha256": hashlib.sha256(answers.read_bytes()).hexdigest(),
        "wall_s": limits.wall_s,
        "cpu_s": limits.cpu_s,
        "memory_mb": limits.memory_mb,
        "isolation": pool.isolation.name,
        "cpu": machine()["cpu"],
        "python": versions()["python"],
    }
    return Executions(folder, facts)


class TableRuns:
    """Looks scripts up by their program; runs and adds what is not there.

    Args:
        table: of the task.
        runs: real runs of a script whose mean it is charged.
    """

    def __init__(self, table: Executions, runs: int):
        self._table, self._runs = table, runs
        self._threads = ThreadPoolExecutor(_WAITING, "table")
        self._locks: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)
        self._grades: dict[str, Grade] = {}

    def hooks(self, real: Hooks) -> Hooks:
        """Hooks whose executions come from the table, and what it lacks from these."""
        execute = functools.partial(self._execute, real)
        return real._replace(execute=execute, grade=self._grade)

    def _execute(self, real: Hooks, run_id: str, script: bytes) -> Future[RunRecord]:
        """The record of a script, at once if the table has it."""
        program = program_digest(script)
        rows = self._table.find(program)
        if len(rows) < self._runs:
            return self._threads.submit(self._measure, real, run_id, program, script)
        known: Future[RunRecord] = Future()
        known.set_result(self._known(run_id, rows))
        return known

    def _grade(self, run: RunRecord) -> Grade:
        return self._grades.pop(run.run_id)

    def _measure(
        self, real: Hooks, run_id: str, program: str, script: bytes
    ) -> RunRecord:
        with self._locks[program], self._table.claim(program):
            rows = self._table.find(program)
            while len(rows) < self._runs:
                name = f"{run_id}-x{len(rows)}"
                run = real.execute(name, script).result()
                if run.status == "sandbox_error":  # says nothing about the script
                    return dataclasses.replace(run, run_id=run_id)
                self._table.add(_row(program, run, real.grade), script)
                rows = self._table.find(program)
        return self._known(run_id, rows)

    def _known(self, run_id: str, rows: Sequence[Row]) -> RunRecord:
        run, grade = mean_of(run_id, rows)
        if grade is not None:
            self._grades[run_id] = grade
        return run

    def close(self) -> None:
        """Start nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._table.close()


def mean_of(run_id: str, rows: Sequence[Row]) -> tuple[RunRecord, Grade | None]:
    """One record for the runs of a program, and its grade.

    What happened most often counts (the first of equals); seconds are the mean over
    those runs, the undisturbed ones if there are any. The score is the first run's.
    """
    counts = collections.Counter(row["status"] for row in rows)
    alike = [row for row in rows if row["status"] == counts.most_common(1)[0][0]]
    alike = [row for row in alike if not row["contended"]] or alike
    first = alike[0]
    grade = None if first["grade"] is None else Grade(**first["grade"])
    kept = {name: first[name] for name in _KEPT}
    run = RunRecord.from_dict(
        kept
        | {"run_id": run_id, "stdout_tail": first["out"], "stderr_tail": first["err"]}
        | {name: _mean(alike, name) for name in ("delta_s", "cpu_s")}
    )
    return dataclasses.replace(
        run,
        slot=SlotUse(contended=first["contended"]),
        # The bytes are not kept; the grade is.
        submission_bytes=None if grade is None else b"",
    ), grade


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(row[name] for row in rows) / len(rows))


def _row(program: str, run: RunRecord, grade: Callable[[RunRecord], Grade]) -> Row:
    plain = run.to_dict()
    graded = None
    if run.status == "ok" and run.submission_bytes is not None:
        graded = dataclasses.asdict(grade(run))
    return {
        "program": program,
        **{name: plain[name] for name in _KEPT},
        "contended": run.slot.contended,
        "out": (run.stdout_tail or run.stdout_head)[-_TEXT:],
        "err": (run.stderr_tail or run.stderr_head)[-_TEXT:],
        "grade": graded,
    }
