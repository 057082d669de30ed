"""A task's code: ``data.py`` of its folder, loaded when its data are made.

``data.py`` defines

    SYNTHETIC   a ``SyntheticData``: the generator and its sizes
    SPLIT       a ``SplitRule``: which training rows are kept back for validation
    CARVE       a ``TableLayout``, or a function (draw, src, public, private)
    TELLTALE    optional: names below public that tell test labels; no view has them

from parts of ``rpg_tasks.kit``.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from rpg_tasks.kit import Carver, SplitRule, SyntheticData, TableLayout
from rpg_tasks.registry import TASKS
from rpg_tasks.task import Task, TaskError

CODE = "data.py"


@dataclass(frozen=True)
class TaskCode:
    """What a task's ``data.py`` defines.

    Attributes:
        synthetic: the generator and its sizes.
        split: how validation rows are drawn.
        carve: the files' layout, or a function that writes the validation view.
        telltale: names below public that tell test labels.
    """

    synthetic: SyntheticData
    split: SplitRule
    carve: TableLayout | Carver
    telltale: tuple[str, ...]


@functools.cache
def _module(folder: Path) -> ModuleType:
    """``data.py`` of a folder: ours by its import name, others by their path."""
    if folder.parent == TASKS:
        return importlib.import_module(f"rpg_tasks.tasks.{folder.name}.data")
    file = folder / CODE
    mark = sha256(str(folder).encode()).hexdigest()[:8]
    name = f"rpg_tasks_outside_{folder.name}_{mark}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise TaskError(f"{folder} has no {CODE}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_code(task: Task) -> TaskCode:
    """The code of a task.

    Raises:
        TaskError: no ``data.py``, it fails on import, or a name is missing or of the
            wrong kind; one line that names the file and the name.
    """
    file = task.folder / CODE
    try:
        module = _module(task.folder)
    except TaskError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise TaskError(f"{file}: {type(error).__name__}: {text}") from error

    names = vars(module)
    synthetic, split = names.get("SYNTHETIC"), names.get("SPLIT")
    carve, telltale = names.get("CARVE"), names.get("TELLTALE", ())
    if not isinstance(synthetic, SyntheticData):
        raise _wrong(file, "SYNTHETIC", "a SyntheticData", synthetic)
    if not isinstance(split, SplitRule):
        raise _wrong(file, "SPLIT", "a SplitRule", split)
    if not (isinstance(carve, TableLayout) or callable(carve)):
        raise _wrong(file, "CARVE", "a TableLayout or a function", carve)
    if isinstance(carve, TableLayout) and carve.id != task.id_column:
        raise TaskError(
            f"{file}: CARVE: the id column is {carve.id!r} here and "
            f"{task.id_column!r} in task.toml: write TableLayout(id={task.id_column!r})"
        )
    if not isinstance(split.stratify, tuple):
        raise TaskError(
            f"{file}: SPLIT: stratify must be a tuple of columns, "
            f"({split.stratify!r},), not {split.stratify!r}"
        )
    if not isinstance(telltale, tuple):
        raise _wrong(file, "TELLTALE", "a tuple of names", telltale)
    return TaskCode(synthetic, split, carve, telltale)


def _wrong(file: Path, name: str, what: str, value: object) -> TaskError:
    if value is None:
        return TaskError(f"{file}: {name} is missing: define it as {what}")
    return TaskError(f"{file}: {name} must be {what}, not {value!r}")
