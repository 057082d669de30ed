"""Finds what a run is for by its name: a task, or a speedrun."""

from __future__ import annotations

from rpg_tasks.registry import get_task, load_tasks
from rpg_tasks.speedrun.record import Speedrun, speedruns
from rpg_tasks.task import Task


def get_goal(name: str) -> Task | Speedrun:
    """The task or speedrun of that name.

    Raises:
        TaskError: there is neither.
    """
    return speedruns()[name] if name in speedruns() else get_task(name)


def goal_names() -> list[str]:
    """Names of all tasks, as in the paper's table, then of the speedruns."""
    return [*load_tasks(), *speedruns()]
