"""``rpg-tasks check``: does a task's folder work, from its record to its prompts?

Makes the small data once into a temporary cache and runs ``checks`` and ``leaks`` on
them; a task for which all of them hold can be trained on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from rpg_tasks import checks, graders, leaks
from rpg_tasks.kit import TableLayout
from rpg_tasks.prepare import TaskData, prepare_task
from rpg_tasks.prompts import STYLES, prompt
from rpg_tasks.registry import get_task, register_task_folder
from rpg_tasks.task import Task, TaskError
from rpg_tasks.taskcode import load_code

Check = Callable[[TaskData, Path], list[str]]


def _files(data: TaskData, folder: Path) -> list[str]:
    del folder
    return checks.wrong_files(data)


def _ids(data: TaskData, folder: Path) -> list[str]:
    del folder
    return checks.wrong_ids(data)


def _gains(data: TaskData, folder: Path) -> list[str]:
    del folder
    return checks.wrong_gains(data)


def _prompts(data: TaskData, folder: Path) -> list[str]:
    del folder
    for style in STYLES:
        prompt(data.task, data.public, style=style)
    return []


def _tables(data: TaskData, folder: Path) -> list[str]:
    del folder
    return leaks.shown_targets(data) + leaks.telling_sample(data)


CHECKS: dict[str, Check] = {
    "files are those of task.toml": _files,
    "sample, test table and answers name the same rows": _ids,
    "the sample submission gains 0, the answers gain 1": _gains,
    "prompts can be written": _prompts,
    "equal seeds give equal data": checks.unstable_data,
    "equal seeds give equal validation rows": checks.unstable_view,
    "no table shows a target of a hidden row": _tables,
    "public bytes do not depend on hidden fields": leaks.telling_bytes,
}


def _find(folder: Path | str) -> Task:
    if Path(folder).is_dir():
        return register_task_folder(folder)
    return get_task(str(folder))


def _line(word: str, text: str) -> None:
    print(f"{word:<8} {text}", flush=True)


def check_task(folder: Path | str) -> int:
    """Check one task and print a line for each check.

    Args:
        folder: a task's folder, or the name of a task.

    Returns:
        0 when everything holds, else 1.
    """
    try:
        task = _find(folder)
        graders.check_grading(task)
        code = load_code(task)
    except TaskError as error:
        _line("FAILED", f"the task loads: {error}")
        return 1
    _line("ok", f"the task loads: {task.short}, {task.folder}")
    with tempfile.TemporaryDirectory() as place:
        try:
            data = prepare_task(task, cache_dir=Path(place) / "cache")
        except Exception as error:
            _line("FAILED", f"data can be made: {_told(error)}")
            return 1
        _line("ok", f"data can be made: {code.synthetic.describe('small')}")
        good = True
        for number, (what, check) in enumerate(CHECKS.items()):
            if check is leaks.telling_bytes and not isinstance(code.carve, TableLayout):
                _line("skipped", f"{what}: CARVE is a function, look at it yourself")
                continue
            good &= _run(what, check, data, Path(place) / str(number))
    return 0 if good else 1


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _run(what: str, check: Check, data: TaskData, folder: Path) -> bool:
    folder.mkdir()
    try:
        wrong = check(data, folder)
    except Exception as error:  # a task's own code, or its files: anything may happen
        wrong = [_told(error)]
    for problem in wrong:
        _line("FAILED", f"{what}: {problem}")
    if not wrong:
        _line("ok", what)
    return not wrong
