"""One task's record: ``task.toml`` read into frozen dataclasses, every key checked.

The facts of the 22 tasks here are those of MLE-Bench (openai/mle-bench at 783b15a, MIT
licence) and of the paper's table.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

RECORD = "task.toml"

Source = Literal["synthetic", "mlebench"]
Size = Literal["small", "medium"]
SOURCES: tuple[Source, ...] = ("synthetic", "mlebench")
SIZES: tuple[Size, ...] = ("small", "medium")

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
    """One task.

    Attributes:
        short: name used in the paper and on the command line; the folder's name with
            ``-`` for ``_``.
        folder: where ``task.toml`` and ``data.py`` are.
        competition_id: MLE-Bench's id, also the folder name of prepared data; the short
            name for a task that is not MLE-Bench's.
        order: place in listings, the paper's row; tasks without one come last, by name.
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
        notes: facts a script should know, in words (may be empty); prompts show them.
        traps: what leaks or misleads, in words; for people, not shown in prompts.
        wall_limit_s: wall-clock limit of one script, seconds.
        memory_mb: memory limit of one script, MiB.
        cores: CPU cores of one script.
        medals: thresholds of the real leaderboard; None where there is none.
        paper: the paper's row; None for tasks that are not in the paper.
        real_rows: train and test rows of the real data (empty when not known).
    """

    short: str
    folder: Path
    competition_id: str
    order: int | None
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
    traps: tuple[str, ...]
    wall_limit_s: float
    memory_mb: int
    cores: int
    medals: Medals | None
    paper: PaperRow | None
    real_rows: Mapping[str, int]

    def __repr__(self) -> str:
        return f"<Task {self.short}>"

    @property
    def record(self) -> Path:
        """The file that this record was read from."""
        return self.folder / RECORD

    @property
    def from_mle_bench(self) -> bool:
        """Whether ``mlebench prepare`` knows the task."""
        return self.competition_id != self.short

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


class _Table:
    """A TOML table whose keys are taken one by one; what is wrong names file and key.

    Args:
        file: where it stands.
        values: the table.
        prefix: path of the table in the file, with a dot at its end.
    """

    def __init__(self, file: Path, values: Mapping[str, object], prefix: str = ""):
        self._file = file
        self._left = dict(values)
        self._prefix = prefix

    def error(self, key: str, what: str) -> TaskError:
        return TaskError(f"{self._file}: {self._prefix}{key}: {what}")

    def _take(self, key: str, default: object = None) -> object:
        if key in self._left:
            return self._left.pop(key)
        if default is None:
            close = difflib.get_close_matches(key, self._left, n=1)
            meant = f" (is {close[0]!r} meant for it?)" if close else ""
            raise self.error(key, f"this key is missing{meant}")
        return default

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be text, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"must be a number, not {value!r}")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"must be a whole number, not {value!r}")
        return value

    def word(self, key: str) -> str | None:
        """The value if it is text, which takes it; else None."""
        return self.text(key) if isinstance(self._left.get(key), str) else None

    def texts(
        self, key: str, default: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or not all(
            isinstance(item, str) for item in value
        ):
            raise self.error(key, f"must be a list of texts, not {value!r}")
        return tuple(value)

    def table(self, key: str) -> _Table:
        value = self._take(key)
        if not isinstance(value, dict):
            raise self.error(key, f"must be a table, not {value!r}")
        return _Table(self._file, value, f"{self._prefix}{key}.")

    def rest(self) -> list[str]:
        return list(self._left)

    def has(self, key: str) -> bool:
        return key in self._left

    def close(self) -> None:
        """Refuse keys that nothing asked for."""
        for key in self._left:
            raise self.error(key, "there is no such key")


def _grading(table: _Table) -> Grading:
    names = [field.name for field in dataclasses.fields(Grading)]
    grading = Grading(**{name: table.text(name) for name in names})
    table.close()
    return grading


def _medals(table: _Table) -> Medals:
    names = [field.name for field in dataclasses.fields(Medals)]
    medals = Medals(**{name: table.number(name) for name in names})
    table.close()
    return medals


def _paper(table: _Table) -> PaperRow:
    names = [field.name for field in dataclasses.fields(PaperRow)]
    row = PaperRow(**{name: table.number(name) for name in names})
    table.close()
    return row


def _sample(table: _Table, targets: tuple[str, ...]) -> Mapping[str, float | str]:
    sample: dict[str, float | str] = {}
    for key in table.rest():
        if targets and key not in ("all", *targets):
            raise table.error(key, "is neither a target nor 'all'")
        word = table.word(key)
        if word is not None and word not in ("uniform", "copy"):
            raise table.error(key, "must be a number, 'uniform' or 'copy'")
        sample[key] = table.number(key) if word is None else word
    return MappingProxyType(sample)


def _task(folder: Path, table: _Table) -> Task:
    short = table.text("short")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", short):
        raise table.error("short", f"must be like 'my-task-1', not {short!r}")
    if short.replace("-", "_") != folder.name:
        raise table.error(
            "short", f"{short!r} belongs in a folder {short.replace('-', '_')!r}"
        )
    direction = table.text("direction")
    if direction not in _PERFECT:
        raise table.error("direction", f"must be 'max' or 'min', not {direction!r}")
    targets = table.texts("targets", ())
    sample_file, files = table.text("sample_file"), table.texts("files")
    if sample_file not in files:
        raise table.error("files", f"lacks the sample_file, {sample_file!r}")
    rows = table.table("real_rows") if table.has("real_rows") else None
    return Task(
        short=short,
        folder=folder,
        competition_id=table.text("competition_id", short),
        order=table.whole("order") if table.has("order") else None,
        modality=table.text("modality"),
        summary=table.text("summary"),
        direction=direction,
        metric_text=table.text("metric_text"),
        submission_text=table.text("submission_text"),
        id_column=table.text("id_column"),
        targets=targets,
        grading=_grading(table.table("grading")),
        sample_file=sample_file,
        sample=_sample(table.table("sample"), targets),
        answers=table.text("answers"),
        files=files,
        optional_files=table.texts("optional_files", ()),
        notes=table.text("notes", ""),
        traps=table.texts("traps", ()),
        wall_limit_s=table.number("wall_limit_s", 600),
        memory_mb=table.whole("memory_mb", 16384),
        cores=table.whole("cores", 1),
        medals=_medals(table.table("medals")) if table.has("medals") else None,
        paper=_paper(table.table("paper")) if table.has("paper") else None,
        real_rows=MappingProxyType(
            {} if rows is None else {key: rows.whole(key) for key in rows.rest()}
        ),
    )


def read_task(folder: Path) -> Task:
    """The record of a task's folder.

    Args:
        folder: it holds ``task.toml``; its name is the short name with ``_`` for ``-``.

    Raises:
        TaskError: no such file, not TOML, or a key that is missing, unknown or wrong;
            one line that names the file and the key.
    """
    file = folder / RECORD
    try:
        table = _Table(file, tomllib.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        raise TaskError(f"{folder} is no task's folder: it has no {RECORD}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TaskError(f"{file} cannot be read: {error}") from error
    task = _task(folder, table)
    table.close()
    return task
