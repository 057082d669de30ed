"""Which code made a task's data: a digest that names the cache entry."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from rpg_tasks.registry import get_task
from rpg_tasks.task import Task

# What a folder may hold that makes no data: compiled code, a policy's menus.
_NO_DATA = {"__pycache__", "menu.toml"}


def _digest(paths: list[Path], base: Path) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(paths):
        name = path.relative_to(base).as_posix().encode()
        digest.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


@functools.cache
def _shared_digest() -> bytes:
    here = Path(__file__).parent
    files = [*here.glob("kit/*.py"), here / "building.py", here / "taskcode.py"]
    return _digest(files, here)


@functools.cache
def _folder_digest(folder: Path) -> bytes:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return _digest([p for p in files if not _NO_DATA.intersection(p.parts)], folder)


def data_version(task: Task | str) -> str:
    """Digest of what makes a task's data: its folder, and the code that tasks share.

    A change of either is a new entry of the cache; a change of another task is not.
    Files are read once per process.
    """
    parts = _folder_digest(get_task(task).folder) + _shared_digest()
    return hashlib.sha256(parts).hexdigest()[:8]
