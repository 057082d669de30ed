"""A run's folders, read once: records of truth in, columns out.

    RUN/config.json                       the experiment
    RUN/<task>/<arm>/seed-<k>/            one cell: config.json, attempts.jsonl,
                                          metrics.jsonl, scripts/, maybe final.jsonl

A folder of one cell may be given too, and several runs together. What cannot be
averaged (another protocol, other data, the same seed twice) is refused.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.config.errors import LedgerError
from experiments.records.ledger import read
from experiments.records.recorded import ATTEMPTS, METRICS, by_step
from experiments.reporting.alike import ReportError, check_alike
from experiments.reporting.unfinished import absent, failed, progress, stopped
from rpg_tasks.registry import Task, TaskError, get_task

CONFIG, FINAL = "config.json", "final.jsonl"
STATUSES = ("valid", "invalid", "failed", "no_script", "infrastructure")

_TEXTS = ("run_id", "parent", "status", "reason")
_WHOLE = ("step", "chain")
_NUMBERS = ("score", "value", "reward", "delta_s", "execution_s", "generation_s")


@dataclasses.dataclass(frozen=True)
class Attempts:
    """Columns of attempts.jsonl, ordered by step and chain; NaN where there is none."""

    run_id: list[str]
    parent: list[str | None]
    status: list[str]
    script: list[str | None]  # digest
    reason: list[str | None]
    offset: np.ndarray  # byte in the file
    step: np.ndarray
    chain: np.ndarray
    score: np.ndarray  # metric units
    value: np.ndarray  # reward without penalty or bonus; 0 for a failure
    reward: np.ndarray
    delta_s: np.ndarray  # on the rule's clock
    execution_s: np.ndarray
    generation_s: np.ndarray
    isolation: frozenset[str]
    contended: int  # attempts whose core was not theirs alone
    left_out: int  # attempts of a step that was not finished

    def __len__(self) -> int:
        return len(self.run_id)

    @property
    def known(self) -> np.ndarray:
        """Attempts that the machinery did not lose."""
        return ~np.isnan(self.delta_s)

    @property
    def valid(self) -> np.ndarray:
        """Attempts with a score."""
        return np.array([s == "valid" for s in self.status], bool)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One task, arm and seed, as far as it got.

    Attributes:
        folder: of the records.
        root: the RUN folder it belongs to (itself, if given alone).
        task: the task.
        arm: name.
        seed: of the policy's sampling.
        config: the ``config`` of its config.json.
        attempts: of the committed steps. Of a step that was stopped the fast scripts
            alone are on record: with them, stopping would favour speed.
        steps: committed steps.
        metrics: columns of metrics.jsonl, shape [steps]; NaN where there is none.
        final: records of the private-test scoring.
        progress: share of the budget used, None where no budget is on record.
    """

    folder: Path
    root: Path
    task: Task
    arm: str
    seed: int
    config: dict[str, Any]
    attempts: Attempts
    steps: int
    metrics: dict[str, np.ndarray]
    final: list[dict[str, Any]]
    progress: float | None

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.task.short}/{self.arm}/seed-{self.seed}"

    @property
    def baseline(self) -> float:
        """The sample submission's score."""
        value = self.config.get("baseline")
        return math.nan if value is None else float(value)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that a report is made from.

    Attributes:
        cells: in the order of tasks (paper's table), arms, seeds.
        headers: config.json of every RUN.
        roots: RUN folders.
        unfinished: what is missing, one line each.
    """

    cells: list[Cell]
    headers: list[dict[str, Any]]
    roots: list[Path]
    unfinished: list[str]

    @property
    def tasks(self) -> list[Task]:
        """Tasks with a finished step."""
        return list({c.task.short: c.task for c in self.cells}.values())

    def arms(self, task: Task | None = None) -> list[str]:
        """Arms with a finished step (of a task)."""
        cells = [c for c in self.cells if task is None or c.task.short == task.short]
        return list(dict.fromkeys(c.arm for c in cells))

    def of(self, task: Task, arm: str) -> list[Cell]:
        """The seeds of a task and arm."""
        return [c for c in self.cells if c.task.short == task.short and c.arm == arm]


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


def _column(rows: Sequence[dict], name: str) -> np.ndarray:
    return _floats([row.get(name) for row in rows])


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([math.nan if v is None else v for v in values], np.float64)


def read_attempts(path: Path, steps: int) -> Attempts:
    """The columns of an attempts.jsonl; a retry takes the place of what it retries.

    Args:
        path: of the file.
        steps: number of committed steps.

    Raises:
        LedgerError: a line is broken; a torn last line is left out.
    """
    names = {**dict(zip(_TEXTS, _TEXTS, strict=True)), "script": "script_sha256"}
    names |= {name: name for name in (*_WHOLE, *_NUMBERS)}
    columns: dict[str, list] = {name: [] for name in (*names, "offset")}
    levels, contended, left_out = set(), 0, 0
    for at, located in by_step(path):
        if at >= steps:
            left_out += len(located)
            continue
        for offset, record in located:
            for name in ("run_id", "step", "chain", "status"):
                if name not in record:
                    raise LedgerError(
                        f"{path} is damaged at byte {offset}: a record without {name}"
                    )
            # Outputs are left in the file: a report shows few of them.
            for name, field in names.items():
                columns[name].append(record.get(field))
            columns["offset"].append(offset)
            levels.add(record.get("isolation"))
            contended += bool(record.get("contended"))
    step, chain = (np.array(columns[name], np.int64) for name in _WHOLE)
    order = np.lexsort((chain, step))
    return Attempts(
        **{name: [columns[name][i] for i in order] for name in (*_TEXTS, "script")},
        **{name: _floats(columns[name])[order] for name in _NUMBERS},
        step=step[order],
        chain=chain[order],
        offset=np.array(columns["offset"], np.int64)[order],
        isolation=frozenset(levels - {None}),
        contended=contended,
        left_out=left_out,
    )


def _read_metrics(path: Path) -> tuple[int, dict[str, np.ndarray], dict[str, float]]:
    rows = [record for _, record in read(path)] if path.exists() else []
    names = ("step", "rho", "rho_next", "on_policy_rate", "best_score", "finished_at")
    columns = {name: _column(rows, name) for name in names}
    used = [row.get("used", {}) for row in rows]
    columns["total_s"] = _column(used, "total")
    return len(rows), columns, used[-1] if used else {}


def _read_cell(folder: Path, root: Path, header: dict[str, Any]) -> Cell | None:
    """A cell; None where no step is finished."""
    config = _config(folder)["config"]
    # Metrics first: a run that goes on meanwhile has then more attempts, not fewer.
    steps, metrics, used = _read_metrics(folder / METRICS)
    path = folder / ATTEMPTS
    attempts = read_attempts(path, steps) if path.exists() else None
    if attempts is None or not len(attempts):
        return None
    try:
        task = get_task(config["task"])
        arm = config["arm"]
        arm = arm if isinstance(arm, str) else arm["name"]
        seed = int(config["seed"])
    except (KeyError, TypeError, ValueError, TaskError) as error:
        raise ReportError(
            f"{folder / CONFIG} does not say which task, arm and seed it is ({error})"
        ) from None
    final = [r for _, r in read(folder / FINAL)] if (folder / FINAL).exists() else []
    budget = header.get("config", {}).get("budget") or config.get("budget")
    share = progress(budget, used)
    return Cell(
        folder, root, task, arm, seed, config, attempts, steps, metrics, final, share
    )


def _header(root: Path, *, alone: bool) -> dict[str, Any]:
    """config.json of the experiment; a cell given alone may lie in one."""
    if not alone:
        return _config(root) if (root / CONFIG).exists() else {}
    parents = root.resolve().parents
    if len(parents) > 2 and (parents[2] / CONFIG).exists():
        header = _config(parents[2])
        if "tasks" in header["config"]:
            return header
    return _config(root)


def _folders(root: Path) -> list[Path]:
    """The cells' folders of a RUN, or the folder itself."""
    if not root.is_dir():
        raise ReportError(f"there is no folder {root}")
    if (root / ATTEMPTS).exists():
        return [root]
    return sorted(path.parent for path in root.glob(f"*/*/seed-*/{CONFIG}"))


def load(
    folders: Sequence[Path | str], *, leave_out_damaged: bool = False
) -> Experiment:
    """Read the folders of one or several runs.

    Args:
        folders: RUN folders, or folders of single cells.
        leave_out_damaged: a cell with a broken line is unfinished, not refused.

    Raises:
        ReportError: no such folder, no finished step, or configurations that differ.
        LedgerError: a broken line in a file of records.
    """
    roots = list(dict.fromkeys(Path(folder) for folder in folders))
    if not roots:
        raise ReportError("a report needs the folder of a run")
    cells, headers, unfinished = [], [], []
    for root in roots:
        found = _folders(root)
        header = _header(root, alone=found == [root])
        headers.append(header)
        damaged = set()
        for folder in found:
            try:
                cell = _read_cell(folder, root, header)
            except LedgerError as error:
                if not leave_out_damaged:
                    raise
                damaged.add(str(folder.relative_to(root)))
                unfinished.append(f"{folder.relative_to(root)}: left out: {error}")
                continue
            if cell is None:
                unfinished.append(f"{folder.relative_to(root)}: no finished step yet")
            else:
                cells.append(cell)
        if found != [root]:
            known = {c.name for c in cells if c.root == root} | damaged
            unfinished += absent(header, known)
            unfinished += failed(root)
    if not cells:
        names = ", ".join(map(str, roots))
        raise ReportError(
            f"no finished step is on record in {names}: nothing to report"
        )
    pairs = zip(roots, headers, strict=True)
    check_alike(cells, [(root, h["config"]) for root, h in pairs if "tasks" in
                        h.get("config", {})])  # fmt: skip
    order = _order(cells)
    cells.sort(key=order)
    unfinished += [line for cell in cells if (line := stopped(cell))]
    return Experiment(cells, headers, roots, list(dict.fromkeys(unfinished)))


def _order(cells: list[Cell]):
    from experiments.config.arms import ARMS
    from rpg_tasks.registry import load_tasks

    tasks, arms = list(load_tasks()), list(ARMS)
    arms += sorted({c.arm for c in cells} - set(arms))
    return lambda c: (tasks.index(c.task.short), arms.index(c.arm), c.seed)
