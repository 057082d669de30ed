"""The 22 tasks as data: ``tasks.toml`` read once into frozen records.

A task is a row, not a module: graders, readers, prompts and generators take a ``Task``
and look up what differs. Adding a task means adding a row to ``tasks.toml``.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

TASKS_FILE = Path(__file__).with_name("tasks.toml")

# The best value each metric can reach; every loss here is bounded below by 0.
_PERFECT = {"max": 1.0, "min": 0.0}


class TaskError(ValueError):
    """A task cannot be named, found or read; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Grading:
    """How a submission is checked and scored (policies of ``graders.py``).

    Attributes:
        metric: name in ``metrics.METRICS``.
        columns: ``required`` | ``exact`` | ``id_first`` | ``targets``.
        rows: ``count`` | ``id_set``.
        values: ``any`` | ``float`` | ``text`` | ``probability`` | ``unit_interval`` |
            ``distribution``.
        align: ``sorted`` | ``sorted_unchecked`` | ``index_masked`` | ``file_order``.
    """

    metric: str
    columns: str
    rows: str
    values: str
    align: str


@dataclasses.dataclass(frozen=True)
class Medals:
    """Leaderboard thresholds of the real competition, in metric units."""

    gold: float
    silver: float
    bronze: float
    median: float


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """The paper's result: mean score and standard error per arm, improvement in %."""

    rpg: float
    rpg_se: float
    vanilla: float
    vanilla_se: float
    improv_pct: float


@dataclasses.dataclass(frozen=True, repr=False)
class Task:
    """One competition.

    Attributes:
        short: name used in the paper and on the command line.
        competition_id: MLE-Bench's id, also the folder name of prepared data.
        modality: ``image``, ``text``, ``tabular``, ``audio`` or a mix.
        summary: what is to be predicted, in one sentence.
        direction: ``max`` when a higher score is better, else ``min``.
        metric_text: the metric in words.
        submission_text: columns and value rules of a submission, in words.
        id_column: column that names a row.
        targets: graded columns; empty means "all columns of the answers but the id".
        grading: check policies and metric.
        sample_file: the public sample submission (maybe inside a zip of that name).
        sample: what it predicts per column (or ``all``): a constant, ``uniform`` or
            ``copy``.
        answers: answers file below ``prepared/private``.
        files: what must lie below ``prepared/public`` (a ``*`` stands for many files).
        optional_files: what may also lie there.
        notes: facts a script should know, in words (may be empty).
        wall_limit_s: wall-clock limit of one script, seconds.
        memory_mb: memory limit of one script, MiB.
        cores: CPU cores of one script.
        medals: thresholds of the real leaderboard.
        paper: the paper's row.
        real_rows: train and test rows of the real data (empty when not known).
    """

    short: str
    competition_id: str
    modality: str
    summary: str
    direction: str
    metric_text: str
    submission_text: str
    id_column: str
    targets: tuple[str, ...]
    grading: Grading
    sample_file: str
    sample: Mapping[str, float | str]
    answers: str
    files: tuple[str, ...]
    optional_files: tuple[str, ...]
    notes: str
    wall_limit_s: float
    memory_mb: int
    cores: int
    medals: Medals
    paper: PaperRow
    real_rows: Mapping[str, int]

    def __repr__(self) -> str:
        return f"<Task {self.short}>"

    @property
    def metric(self) -> str:
        """Name of the metric in ``metrics.METRICS``."""
        return self.grading.metric

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger score is a better one."""
        return self.direction == "max"

    @property
    def perfect_score(self) -> float:
        """The score of a perfect submission, in metric units."""
        return _PERFECT[self.direction]

    @property
    def submission_name(self) -> str:
        """File that a script must write into its working directory."""
        return "submission.csv"


def _build(short: str, row: dict[str, Any], defaults: dict[str, Any]) -> Task:
    row = {
        "targets": [],
        "optional_files": [],
        "notes": "",
        "real_rows": {},
        **defaults,
        **row,
    }
    if row["direction"] not in _PERFECT:
        raise TaskError(
            f"{TASKS_FILE.name}: {short}: direction must be 'max' or 'min', "
            f"not {row['direction']!r}"
        )
    for name, kind in (("grading", Grading), ("medals", Medals), ("paper", PaperRow)):
        row[name] = kind(**row[name])
    for name in ("targets", "files", "optional_files"):
        row[name] = tuple(row[name])
    for name in ("sample", "real_rows"):
        row[name] = MappingProxyType(row[name])
    try:
        return Task(short=short, **row)
    except TypeError as error:  # a missing or misspelt key
        raise TaskError(f"{TASKS_FILE.name}: {short}: {error}") from error


@functools.cache
def load_tasks() -> Mapping[str, Task]:
    """All tasks by short name, in the order of the paper's table.

    Raises:
        TaskError: ``tasks.toml`` has a record that is not a task.
    """
    with TASKS_FILE.open("rb") as file:
        data = tomllib.load(file)
    defaults = data["defaults"]
    tasks = {name: _build(name, row, defaults) for name, row in data["tasks"].items()}
    return MappingProxyType(tasks)


def _names(task: Task) -> list[str]:
    """What a task may be called by mistake: its names and their parts."""
    whole = [task.short, task.competition_id]
    parts = [part for name in whole for part in name.split("-") if len(part) > 3]
    return list(dict.fromkeys(whole + parts))


def get_task(name: str | Task) -> Task:
    """The task with this short name or competition id.

    Args:
        name: ``spooky-author`` or ``spooky-author-identification``; a ``Task`` is
            returned as it is.

    Raises:
        TaskError: no such task; the message lists close names, or all of them.
    """
    if isinstance(name, Task):
        return name
    tasks = load_tasks()
    by_id = {task.competition_id: task for task in tasks.values()}
    key = str(name).strip().lower().replace("_", "-")
    found = tasks.get(key) or by_id.get(key)
    if found is not None:
        return found
    names: dict[str, list[str]] = {}
    for task in tasks.values():
        for part in _names(task):
            names.setdefault(part, []).append(task.short)
    close = difflib.get_close_matches(key, names, n=3, cutoff=0.75)
    shorts = list(dict.fromkeys(short for hit in close for short in names[hit]))[:4]
    hint = (
        f"did you mean {' or '.join(shorts)}?"
        if shorts
        else f"the tasks are: {', '.join(tasks)}"
    )
    raise TaskError(f"there is no task {name!r}: {hint}")
