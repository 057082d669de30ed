"""Finds tasks: a task is a folder with ``task.toml`` and ``data.py``.

Three places are looked at: ``rpg_tasks/tasks/``, the folders that the environment
variable ``RPG_TASKS_PATH`` names (each holds task folders), and folders given to
``register_task_folder``. No list of tasks is kept anywhere.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rpg_tasks.task import RECORD, Grading, Medals, PaperRow, Task, TaskError, read_task

__all__ = [
    "PATH_VARIABLE",
    "TASKS",
    "Grading",
    "Medals",
    "PaperRow",
    "Task",
    "TaskError",
    "get_task",
    "load_tasks",
    "register_task_folder",
    "task_folder",
    "task_folders",
]

TASKS = Path(__file__).with_name("tasks")
PATH_VARIABLE = "RPG_TASKS_PATH"

_registered: list[Path] = []


def _named_by_environment() -> tuple[Path, ...]:
    named = os.environ.get(PATH_VARIABLE, "").split(os.pathsep)
    folders = []
    for name in filter(None, named):
        folder = Path(name).expanduser().resolve()
        if not folder.is_dir():
            raise TaskError(f"{PATH_VARIABLE} names {name}, which is no folder")
        folders.append(folder)
    return tuple(folders)


def task_folders() -> tuple[Path, ...]:
    """The folders of all tasks: our own, from the environment, registered.

    Raises:
        TaskError: ``RPG_TASKS_PATH`` names something that is no folder.
    """
    roots = (TASKS, *_named_by_environment())
    found = [
        record.parent for root in roots for record in sorted(root.glob(f"*/{RECORD}"))
    ]
    return tuple(dict.fromkeys([*found, *_registered]))


def load_tasks() -> Mapping[str, Task]:
    """All tasks by short name: the paper's in its order, then the others by name.

    The order of the paper's table is the key ``order`` of each ``task.toml``.

    Raises:
        TaskError: a ``task.toml`` is not a task's record, or two tasks share a name.
    """
    return _load(task_folders())


@functools.lru_cache(maxsize=16)
def _load(folders: tuple[Path, ...]) -> Mapping[str, Task]:
    tasks = [_read(folder) for folder in folders]
    owner: dict[str, Task] = {}
    for task in tasks:
        for name in dict.fromkeys((task.short, task.competition_id)):
            if name in owner:
                raise TaskError(
                    f"{task.record}: the name {name!r} is taken by {owner[name].record}"
                )
            owner[name] = task
    tasks.sort(key=lambda task: (task.order is None, task.order or 0, task.short))
    return MappingProxyType({task.short: task for task in tasks})


_read = functools.cache(read_task)


def register_task_folder(path: Path | str) -> Task:
    """Add one task from a folder outside the package, for this process.

    Args:
        path: the task's own folder, with ``task.toml`` and ``data.py``. For processes
            started later use ``RPG_TASKS_PATH``.

    Raises:
        TaskError: there is no record, it is wrong, or its name is taken.
    """
    folder = Path(path).expanduser().resolve()
    task = _read(folder)
    if folder not in task_folders():
        _load((*task_folders(), folder))
        _registered.append(folder)
    return task


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


def task_folder(name: str | Task) -> Path:
    """The folder of a task, with its ``task.toml`` and ``data.py``.

    Args:
        name: as for ``get_task``.

    Raises:
        TaskError: no such task.
    """
    return get_task(name).folder
