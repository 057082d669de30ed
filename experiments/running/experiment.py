"""An experiment: what is run, where, and with what."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.protocol import Protocol
from experiments.config.settings import Settings
from experiments.console.screen import Screen
from experiments.policies.base import Policy
from experiments.running.places import Places
from rpg_tasks.goal import Goal
from rpg_tasks.prepare import TaskData
from rpg_tasks.prompts import Attempt
from rpg_tasks.registry import Task
from sandbox_exec.protocol import ScriptPool

#: (task, longest prompt) -> the loop's ``describe`` hook.
Describer = Callable[[Goal, int], Callable[[Attempt | None], str | None]]


class Parts(NamedTuple):
    """What an experiment is run with; tests give other parts.

    Attributes:
        policy: (folder, seed, protocol, task) -> a policy at the start weights.
        describer: for a policy that is not asked for scripts; None for the task's
            prompts.
        count_tokens: tokens of a prompt; None takes four characters for a token.
        pool: opens a pool of slots; None where no script will run (replay).
        prepare: (task, source) -> its data.
        leaderboard: task -> scores of all teams, or None where no rule needs them.
        clock: seconds of work.
        park: one policy's training state on the accelerator at a time.
        verifying: opens a speedrun's slots for verification; None where none will run.
    """

    policy: Callable[[Path, int, Protocol, Goal], Policy]
    describer: Describer | None
    count_tokens: Callable[[str], int] | None
    pool: Callable[[], contextlib.AbstractContextManager[ScriptPool]] | None
    prepare: Callable[[Task, str], TaskData]
    leaderboard: Callable[[Task], Any]
    clock: Callable[[], float]
    park: bool = False
    verifying: Callable[[], contextlib.AbstractContextManager[ScriptPool]] | None = None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that a run needs to know; made once, handed on as one.

    Attributes:
        settings: what is run.
        places: where.
        parts: with what.
        identity: further facts for config.json that a resumed run must share.
        screen: what the user sees.
        resume: go on with ``places.out``.
        replay: folder of an experiment to reproduce.
        loading_s: seconds that model and data took to load.
    """

    settings: Settings
    places: Places
    parts: Parts
    identity: Mapping[str, Any]
    screen: Screen = dataclasses.field(default_factory=Screen)
    resume: bool = False
    replay: Path | None = None
    loading_s: float = 0.0
