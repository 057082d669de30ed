"""The folders of one or several experiments, read once.

    RUN/config.json                  the experiment
    RUN/<task>/<arm>/seed-<k>/       one run: config.json, attempts.jsonl,
                                     metrics.jsonl, scripts/, maybe final.jsonl

A folder of one run may be given too. What cannot be averaged (another protocol, other
data, the same seed twice) is refused.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.config.arms import ARMS
from experiments.config.errors import LedgerError
from experiments.records.final import final_records
from experiments.records.ledger import Record, read
from experiments.records.phases import PHASES
from experiments.records.recorded import (
    ATTEMPTS,
    METRICS,
    answer_alone,
    by_step,
    is_repeat,
)
from experiments.reporting.alike import check_alike
from experiments.reporting.runs import (
    Attempts,
    Experiment,
    Floats,
    ReportError,
    RunRecords,
    rule_of,
)
from experiments.reporting.unfinished import absent, failed, progress, stopped
from rpg_tasks.goals import get_goal, goal_names
from rpg_tasks.registry import TaskError

CONFIG = "config.json"

_NEEDED = ("run_id", "step", "chain", "status")
#: Outputs stay in the file: a report shows few of them.
_KEPT = (
    *_NEEDED, "parent", "reason", "script_sha256", "score", "value", "reward",
    "delta_s", "execution_s", "generation_s", "repeat_of",
    "loss", "program_sha256",
)  # fmt: skip
_METRICS = ("step", "rho", "rho_next", "on_policy_rate", "best_score", "finished_at")


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(f"there is no {path}: is this the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read ({error})") from None
    if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
        raise ReportError(f"{path} holds no configuration of a run")
    return content


def _floats(rows: Sequence[Record], name: str) -> Floats:
    values = (row.get(name) for row in rows)
    return np.array([math.nan if v is None else v for v in values], np.float64)


class _Totals:
    """Sums over attempts of which no column is kept."""

    def __init__(self) -> None:
        self.levels: set[str] = set()
        self.cpu_models: set[str] = set()
        self.executed = self.contended = 0
        self.spent_s = self.disturbed_s = 0.0

    def take(self, record: Record) -> None:
        if level := record.get("isolation"):
            self.levels.add(level)
        if model := record.get("cpu_model"):
            self.cpu_models.add(model)
        if is_repeat(record) or not record.get("script_sha256"):
            return
        self.executed += 1
        self.contended += bool(record.get("contended"))
        self.spent_s += (record.get("execution_s") or 0.0) + record.get("rerun_s", 0.0)
        self.disturbed_s += record.get("disturbed_s") or 0.0


def read_attempts(path: Path, steps: int, *, clock: str = "attempt") -> Attempts:
    """The columns of an attempts.jsonl; a retry takes the place of what it retries.

    Args:
        path: of the file.
        steps: number of committed steps.
        clock: of the reward rule; says what a repeat costs.

    Raises:
        LedgerError: a line is broken; a torn last line is left out.
    """
    rows: list[Record] = []
    totals, left_out = _Totals(), 0
    for step, located in by_step(path):
        if step >= steps:
            left_out += len(located)
            continue
        for offset, record in located:
            for name in _NEEDED:
                if name not in record:
                    raise LedgerError(
                        f"{path} is damaged at byte {offset}: a record without {name}"
                    )
            totals.take(record)
            counted = answer_alone(record, clock=clock)
            rows.append({name: counted.get(name) for name in _KEPT} | {"at": offset})
    rows.sort(key=lambda row: (row["step"], row["chain"]))
    return Attempts(
        run_id=[row["run_id"] for row in rows],
        parent=[row["parent"] for row in rows],
        status=[row["status"] for row in rows],
        script=[row["script_sha256"] for row in rows],
        program=[row["program_sha256"] for row in rows],
        reason=[row["reason"] for row in rows],
        offset=np.array([row["at"] for row in rows], np.int64),
        step=np.array([row["step"] for row in rows], np.int64),
        chain=np.array([row["chain"] for row in rows], np.int64),
        score=_floats(rows, "score"),
        value=_floats(rows, "value"),
        reward=_floats(rows, "reward"),
        delta_s=_floats(rows, "delta_s"),
        execution_s=_floats(rows, "execution_s"),
        generation_s=_floats(rows, "generation_s"),
        repeat=np.array([is_repeat(row) for row in rows], np.bool_),
        loss=_floats(rows, "loss"),
        isolation=frozenset(totals.levels),
        cpu_models=frozenset(totals.cpu_models),
        executed=totals.executed,
        contended=totals.contended,
        spent_s=totals.spent_s,
        disturbed_s=totals.disturbed_s,
        left_out=left_out,
    )


class _Metrics(NamedTuple):
    """metrics.jsonl: steps, updates skipped, columns, what the last step had used."""

    steps: int
    skipped: int
    columns: dict[str, Floats]
    used: dict[str, float]


def _read_metrics(path: Path) -> _Metrics:
    rows = [record for _, record in read(path)] if path.exists() else []
    columns = {name: _floats(rows, name) for name in _METRICS}
    used = [row.get("used", {}) for row in rows]
    columns["total_s"] = _floats(used, "total")
    for phase in PHASES:
        columns[f"{phase}_s"] = _floats([row.get("seconds", {}) for row in rows], phase)
    skipped = sum(bool((row.get("learn") or {}).get("skipped")) for row in rows)
    return _Metrics(len(rows), skipped, columns, used[-1] if used else {})


def read_run(folder: Path, root: Path, header: dict[str, Any]) -> RunRecords | None:
    """The records of one run; None where no step is finished.

    Args:
        folder: of the run.
        root: of its experiment.
        header: the experiment's config.json.

    Raises:
        ReportError: config.json is missing or does not say which run it is.
        LedgerError: a file of records is damaged.
    """
    config = _config(folder)["config"]
    # Metrics first: a run that goes on meanwhile has then more attempts, not fewer.
    metrics = _read_metrics(folder / METRICS)
    path, clock = folder / ATTEMPTS, rule_of(config).clock
    attempts = None
    if path.exists():
        attempts = read_attempts(path, metrics.steps, clock=clock)
    if attempts is None or not len(attempts):
        return None
    try:
        task = get_goal(config["task"])
        arm = config["arm"]
        arm = arm if isinstance(arm, str) else arm["name"]
        seed = int(config["seed"])
    except (KeyError, TypeError, ValueError, TaskError) as error:
        raise ReportError(
            f"{folder / CONFIG} does not say which task, arm and seed it is ({error})"
        ) from None
    budget = header.get("config", {}).get("budget") or config.get("budget")
    return RunRecords(
        folder=folder,
        root=root,
        task=task,
        arm=arm,
        seed=seed,
        config=config,
        attempts=attempts,
        steps=metrics.steps,
        skipped=metrics.skipped,
        metrics=metrics.columns,
        final=final_records(folder),
        progress=progress(budget, metrics.used),
    )


def _header(root: Path, *, alone: bool) -> dict[str, Any]:
    """config.json of the experiment; a run given alone may be part of one."""
    if not alone:
        return _config(root) if (root / CONFIG).exists() else {}
    parents = root.resolve().parents
    if len(parents) > 2 and (parents[2] / CONFIG).exists():
        header = _config(parents[2])
        if "tasks" in header["config"]:
            return header
    return _config(root)


def _folders(root: Path) -> list[Path]:
    """The runs' folders of an experiment, or the folder itself."""
    if not root.is_dir():
        raise ReportError(f"there is no folder {root}")
    if (root / ATTEMPTS).exists():
        return [root]
    return sorted(path.parent for path in root.glob(f"*/*/seed-*/{CONFIG}"))


def load(
    folders: Sequence[Path | str], *, leave_out_damaged: bool = False
) -> Experiment:
    """Read the folders of one or several experiments.

    Args:
        folders: of experiments, or of single runs.
        leave_out_damaged: a run with a broken line is unfinished, not refused.

    Raises:
        ReportError: no such folder, no finished step, or configurations that differ.
        LedgerError: a broken line in a file of records.
    """
    roots = list(dict.fromkeys(Path(folder) for folder in folders))
    if not roots:
        raise ReportError("a report needs the folder of a run")
    runs: list[RunRecords] = []
    headers: list[dict[str, Any]] = []
    unfinished: list[str] = []
    for root in roots:
        found, header, missing = _read_root(root, leave_out_damaged)
        runs += found
        headers.append(header)
        unfinished += missing
    if not runs:
        names = ", ".join(map(str, roots))
        raise ReportError(
            f"no finished step is on record in {names}: nothing to report"
        )
    named = [
        (root, header["config"])
        for root, header in zip(roots, headers, strict=True)
        if "tasks" in header.get("config", {})
    ]
    check_alike(runs, named)
    runs.sort(key=_order(runs))
    unfinished += [line for run in runs if (line := stopped(run))]
    return Experiment(runs, headers, roots, list(dict.fromkeys(unfinished)))


def _read_root(
    root: Path, leave_out_damaged: bool
) -> tuple[list[RunRecords], dict[str, Any], list[str]]:
    """The runs of a folder, its config.json, and what is missing or damaged."""
    found = _folders(root)
    alone = found == [root]
    header = _header(root, alone=alone)
    runs: list[RunRecords] = []
    unfinished: list[str] = []
    damaged: set[str] = set()
    for folder in found:
        name = str(folder.relative_to(root))
        try:
            run = read_run(folder, root, header)
        except LedgerError as error:
            if not leave_out_damaged:
                raise
            damaged.add(name)
            unfinished.append(f"{name}: left out: {error}")
            continue
        if run is None:
            unfinished.append(f"{name}: no finished step yet")
        else:
            runs.append(run)
    if not alone:
        unfinished += absent(header, {run.name for run in runs} | damaged)
        unfinished += failed(root)
    return runs, header, unfinished


def _order(runs: Sequence[RunRecords]) -> Callable[[RunRecords], tuple[int, int, int]]:
    """Tasks as in the paper's table, arms as they are listed, then others by name."""
    tasks, arms = goal_names(), list(ARMS)
    arms += sorted({run.arm for run in runs} - set(arms))
    return lambda run: (tasks.index(run.task.short), arms.index(run.arm), run.seed)
