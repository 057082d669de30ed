"""Words that differ between a competition and a speedrun."""

from __future__ import annotations

from rpg_tasks.goal import Goal
from rpg_tasks.speedrun.record import Speedrun

_FAILURES = {
    "best": "a failed attempt costs its time and leaves the best as it is",
    "last": "a failed attempt counts as {start}",
    "mean": "running mean; a failed attempt counts as {start}",
}


def is_speedrun(task: Goal) -> bool:
    """Whether its score is seconds to a target."""
    return isinstance(task, Speedrun)


def start(task: Goal) -> str:
    """What an attempt is compared with."""
    return "the baseline" if is_speedrun(task) else "the sample submission"


def failures(task: Goal, curve: str) -> str:
    """How failures enter a curve."""
    return _FAILURES[curve].format(start=start(task))


def score(task: Goal) -> str:
    """The score, for an axis."""
    return "seconds to the target" if is_speedrun(task) else "score"


def unearned(task: Goal) -> str:
    """Why an arm earned nothing."""
    if is_speedrun(task):
        return "no script reached the target"
    return "no script beat the sample submission"
