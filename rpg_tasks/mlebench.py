"""The folder that ``mlebench prepare -c ID`` leaves, checked before it is used.

    <data_dir>/<competition_id>/{raw, prepared/public, prepared/private}

Nothing is downloaded here. Data that are missing, half-prepared or damaged are reported
in one line with the command that repairs them.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import shlex
import sys
from pathlib import Path

from rpg_tasks import archives
from rpg_tasks.registry import get_task
from rpg_tasks.task import SOURCES, Source, Task, TaskError

READY, HALF, MISSING = "ready", "half-prepared", "not there"


def default_data_dir() -> Path:
    """MLE-Bench's own default: ``mle-bench/data`` below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    if not base:
        base = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return Path(base).expanduser() / "mle-bench" / "data"


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What lies below ``<data_dir>/<competition_id>``.

    Attributes:
        task: the task.
        root: ``<data_dir>/<competition_id>``.
        state: ``ready``, ``half-prepared`` or ``not there``.
        problems: what is missing or damaged, most telling first.
    """

    task: Task
    root: Path
    state: str
    problems: tuple[str, ...]

    @property
    def public(self) -> Path:
        """Folder of the files that a script may see."""
        return self.root / "prepared" / "public"

    @property
    def answers(self) -> Path:
        """The private test answers."""
        return self.root / "prepared" / "private" / self.task.answers

    @property
    def sample(self) -> Path:
        """The public sample submission, maybe a zip with one file."""
        return self.public / self.task.sample_file


def prepare_command(task: Task, data_dir: Path) -> str:
    """The shell command that prepares the task's real data."""
    command = f"mlebench prepare -c {task.competition_id}"
    if data_dir != default_data_dir():
        command += f" --data-dir {shlex.quote(str(data_dir))}"
    return command


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file), [])


def _file_problem(folder: Path, name: str) -> str | None:
    hit = next(folder.glob(name), None) if "*" in name else folder / name
    shown = f"{folder.name}/{name}"
    if hit is None or not hit.exists():
        return f"{shown} is missing"
    if hit.is_dir() or "*" in name:
        return None
    if hit.stat().st_size == 0:
        return f"{shown} is empty"
    if archives.is_archive(hit):
        try:
            if not archives.list_members(hit):
                return f"{shown} holds no files"
        except TaskError:
            return f"{shown} is damaged or cut short"
    return None


def _answers_problem(prepared: Prepared) -> str | None:
    path, task = prepared.answers, prepared.task
    problem = _file_problem(path.parent, task.answers)
    if problem is not None:
        return problem
    try:
        header = _header(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return f"private/{task.answers} cannot be read ({error})"
    lost = [n for n in (task.id_column, *task.targets) if n not in header]
    if lost:
        return f"private/{task.answers} has no column {', '.join(map(repr, lost))}"
    return None


def inspect_prepared(task: Task | str, data_dir: Path | str | None = None) -> Prepared:
    """Look at a task's real data without reading the bulk of it.

    Args:
        task: task or its name.
        data_dir: MLE-Bench's data folder; None for its default.
    """
    task = get_task(task)
    base = Path(data_dir).expanduser() if data_dir else default_data_dir()
    found = Prepared(task, base / task.competition_id, READY, ())
    if not found.root.is_dir():
        return dataclasses.replace(
            found, state=MISSING, problems=(f"no folder {found.root}",)
        )
    try:
        if not found.public.is_dir():
            problems = ["it was downloaded but not prepared"]
        else:
            checks = [_file_problem(found.public, name) for name in task.files]
            checks.append(_answers_problem(found))
            problems = [problem for problem in checks if problem]
    except OSError as error:
        problems = [f"{error.filename or found.root} cannot be read: {error.strerror}"]
    if not problems:
        return found
    return dataclasses.replace(found, state=HALF, problems=tuple(problems))


def find_prepared(task: Task | str, data_dir: Path | str | None = None) -> Prepared:
    """The task's real data, complete as far as a quick look can tell.

    Args:
        task: task or its name.
        data_dir: MLE-Bench's data folder; None for its default.

    Raises:
        TaskError: missing or half-prepared; one line with the command to run.
    """
    found = inspect_prepared(task, data_dir)
    if found.state == READY:
        return found
    more = len(found.problems) - 1
    problem = found.problems[0] + (f" and {more} more" if more else "")
    step = f"put its files below {found.root / 'prepared'}"
    if found.task.from_mle_bench:
        step = f"run `{prepare_command(found.task, found.root.parent)}`"
    raise TaskError(
        f"{found.task.short}: the MLE-Bench data in {found.root} are {found.state} "
        f"({problem}); {step}, point --data-dir elsewhere, or use --data=synthetic"
    )


def as_source(data: str) -> Source:
    """The name of a source, checked.

    Raises:
        TaskError: there is no such source.
    """
    for source in SOURCES:
        if data == source:
            return source
    raise TaskError(f"data must be 'synthetic' or 'mlebench', not {data!r}")


def choose_source(
    task: Task | str, data: str | None = None, data_dir: Path | str | None = None
) -> Source:
    """``mlebench`` or ``synthetic``: as asked for, else real data if there are any.

    Args:
        task: task or its name.
        data: ``mlebench``, ``synthetic`` or None.
        data_dir: MLE-Bench's data folder; None for its default.

    Raises:
        TaskError: an unknown source; or nothing was asked for and the real data are
            half-prepared: using synthetic data then would hide a mistake.
    """
    if data is not None:
        return as_source(data)
    if inspect_prepared(task, data_dir).state == MISSING:
        return "synthetic"
    find_prepared(task, data_dir)
    return "mlebench"
