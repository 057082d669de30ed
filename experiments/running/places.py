"""Where things are on this machine, and whether they are there."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from experiments.config import plain
from experiments.config.errors import UsageError
from experiments.config.settings import Settings
from experiments.records.rundir import default_folder
from rpg_tasks.registry import Task, TaskError, get_task


@dataclasses.dataclass(frozen=True)
class Places:
    """Where things are on this machine; nothing of it changes a number.

    Attributes:
        out: the experiment's folder.
        data_dir: MLE-Bench's data; None: its default.
        cache_dir: built data; None: the user's cache.
        leaderboards: MLE-Bench's ``competitions`` folder; None: the installed package.
        unverified: go on from a checkpoint whose manifest is gone.
    """

    out: Path
    data_dir: str | None = None
    cache_dir: str | None = None
    leaderboards: str | None = None
    unverified: bool = False


def default_out(settings: Settings, *, replay: bool) -> Path:
    """A folder that no earlier run has used."""
    tasks = settings.tasks
    name = tasks[0] if len(tasks) == 1 else f"{len(tasks)}-tasks"
    return default_folder("mle_bench", f"{name}-replay" if replay else name)


def show(settings: Settings, places: Places) -> str:
    """The resolved configuration as JSON."""
    shown = plain.to_plain(settings) | {"out": str(places.out)}
    return json.dumps(shown, indent=2, ensure_ascii=False)


def check_folder(folder: Path, *, resume: bool) -> None:
    """Refuse a folder that cannot become this run's, before anything slow.

    Raises:
        UsageError: it holds a run (and ``resume`` is false) or other files, or cannot
            be written.
    """
    if (folder / "config.json").exists():
        if not resume:
            raise UsageError(
                f"{folder} holds a run already: add --resume to go on with it, or "
                "choose another --out"
            )
        return
    try:
        # As rundir.open_run has it, which comes after the weights.
        full = folder.is_dir() and any(
            path.suffix != ".partial" for path in folder.iterdir()
        )
    except OSError as error:
        raise UsageError(
            f"cannot read {folder} ({error.strerror or error}): choose another --out"
        ) from None
    if full:
        raise UsageError(
            f"{folder} is not empty and holds no run: choose another --out"
        )
    near = folder
    while not near.exists() and near != near.parent:
        near = near.parent
    if not near.is_dir() or not os.access(near, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write to {folder}: choose another --out")


def leaderboard_path(task: Task, folder: str | None) -> Path:
    """Where MLE-Bench keeps a competition's leaderboard.

    Raises:
        TaskError: no folder is given and the package is not installed.
    """
    import importlib.util

    if folder is None:
        found = importlib.util.find_spec("mlebench")
        if found is None or found.origin is None:
            raise TaskError(
                f"{task.short}: the paper's reward is a leaderboard percentile here: "
                "give --leaderboards=DIR (mlebench/competitions of an MLE-Bench "
                "checkout, after `git lfs pull`), or choose --reward=gain"
            )
        folder = str(Path(found.origin).parent / "competitions")
    return Path(folder).expanduser() / task.competition_id / "leaderboard.csv"


def leaderboard_of(settings: Settings, places: Places, task: Task) -> Any:
    """Scores of all teams where the reward needs them, else None.

    Raises:
        TaskError: they are needed and not there.
    """
    from rpg_tasks.scores import load_leaderboard

    if settings.protocol.rule.kind != "paper" or task.higher_is_better:
        return None
    return load_leaderboard(leaderboard_path(task, places.leaderboards))


def check_tasks(settings: Settings, places: Places) -> None:
    """What each task needs beside its data.

    Raises:
        UsageError: something is missing.
    """
    for short in settings.tasks:
        try:
            leaderboard_of(settings, places, get_task(short))
        except TaskError as error:
            raise UsageError(str(error)) from error
