"""All runs of one task: every arm and seed, interleaved, then the private test."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from experiments.config.budget import Budget
from experiments.config.errors import Diverged
from experiments.config.settings import Settings
from experiments.loop.accounts import Cell
from experiments.loop.algorithm import Loop
from experiments.loop.grade import Scoring
from experiments.loop.turns import run
from experiments.policies.base import Policy
from experiments.records import rundir
from experiments.records.results import run_folder
from experiments.running.final import FinalScoring
from experiments.running.wiring import cell_config, make_hooks, script_limits
from rpg_tasks.prepare import TaskData
from rpg_tasks.prompts import StatedLimits
from rpg_tasks.registry import Task, TaskError
from sandbox_exec.protocol import ScriptPool

if TYPE_CHECKING:  # scikit-learn is slow to import
    from rpg_tasks.grading import Grader


class Parts(NamedTuple):
    """What an experiment is run with; tests give other parts.

    Attributes:
        policy: (folder, seed, protocol, task) -> a policy at the start weights.
        describer: (task, longest prompt) -> the loop's ``describe`` hook, for a policy
            that is not asked for scripts; None for the task's prompts.
        count: tokens of a prompt; None takes four characters for a token.
        pool: opens a pool of slots; None where no script will run (replay).
        prepare: (task, source) -> its data.
        leaderboard: task -> scores of all teams, or None where no rule needs them.
        clock: seconds of work.
        park: one policy's training state on the accelerator at a time.
    """

    policy: Callable[[Path, int, Any, Task], Policy]
    describer: Callable[[Task, int], Any] | None
    count: Callable[[str], int] | None
    pool: Callable[[], contextlib.AbstractContextManager[ScriptPool]] | None
    prepare: Callable[[Task, str], TaskData]
    leaderboard: Callable[[Task], Any]
    clock: Callable[[], float]
    park: bool = False


class Watcher(Protocol):
    """Who looks on."""

    def begin(self, task: Task, loops: list[Loop], budget: Budget) -> None:
        """Runs are about to start."""

    def begin_step(self, loop: Loop) -> None:
        """A step is about to start."""

    def step(self, loop: Loop, metrics: dict[str, Any]) -> None:
        """A step is over."""

    def final(self, folder: Path, record: dict[str, Any]) -> None:
        """A script was scored on the private test."""

    def note(self, text: str) -> None:
        """Something that the user should know."""


def cells_of(
    settings: Settings, task: Task, grader: Grader, leaderboard: Any
) -> list[Cell]:
    """The runs of a task: equal in everything but arm and seed.

    Raises:
        TaskError: the reward needs a baseline that the data do not give.
    """
    protocol = settings.protocol
    if protocol.rule.kind == "gain" and grader.baseline is None:
        raise TaskError(
            f"{task.short}: the sample submission has no score on these answers, so "
            "there is no gain over it; use --reward=raw (with --failure_penalty above "
            "the worst loss, where the metric is one)"
        )
    return [
        Cell(
            arm=arm,
            protocol=protocol,
            scoring=Scoring(task, protocol.rule, grader.baseline, leaderboard),
            seed=seed,
            limit_s=settings.limit_s(task),
            checkpoint_every=settings.machine.checkpoint_every,
        )
        for at, seed in enumerate(settings.seeds)
        # The first of equals begins; whatever that is worth goes round by seed.
        for arm in settings.arms[:: -1 if at % 2 else 1]
    ]


class TaskRun:
    """One task of an experiment.

    Args:
        settings: of the experiment.
        task: the task.
        source: of its data.
        folder: of the experiment.
        parts: policy, pool, data.
        watcher: who looks on.
        resume: go on with what the folder holds.
        replay: folder of the experiment whose records are fed in place of execution.
    """

    def __init__(
        self,
        settings: Settings,
        task: Task,
        source: str,
        folder: Path,
        parts: Parts,
        watcher: Watcher,
        *,
        resume: bool = False,
        replay: Path | None = None,
    ):
        self.settings, self.task, self.folder = settings, task, folder
        self.parts, self.watcher = parts, watcher
        self.resume, self.replay = resume, replay
        self._awake: Any = None
        self.data = parts.prepare(task, source)
        self.split = settings.protocol.reward_split
        self.grader = self._grader(self.split)
        self.limits = script_limits(
            self.data, self.grader, wall_s=settings.limit_s(task)
        )

    def _grader(self, split: str) -> Grader:
        from rpg_tasks.grading import Grader

        data = self.data
        if split == "test":
            return Grader(data.task, data.test_answers, data.test_sample)
        return Grader(data.task, data.answers, data.sample)

    def run(self) -> int:
        """Run to the end of the budget, then score the private test.

        Returns:
            How many scripts' test scores the machinery lost.

        Raises:
            LoopError, TaskError: one line; what was recorded is safe.
            Stopped, KeyboardInterrupt: Ctrl-C.
        """
        leaderboard = self.parts.leaderboard(self.task)
        cells = cells_of(self.settings, self.task, self.grader, leaderboard)
        budget = self.settings.budget
        if self.replay is not None:
            # As long as the records go; a run without any is over at once.
            budget = Budget(steps=10**9)
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(self.parts.pool()) if self.parts.pool else None
            loops = [self._loop(stack, cell, pool) for cell in cells]
            self.watcher.begin(self.task, loops, budget)
            diverged = run(loops, budget, self.watcher.step, self._begin_step)
            lost = 0
            if self.replay is None and self.settings.final != "none":
                lost = self._final(loops, pool)
        if diverged:
            more = f" (and {len(diverged) - 1} more)" if diverged[1:] else ""
            raise Diverged(f"{diverged[0]}{more}")
        return lost

    def _loop(
        self, stack: contextlib.ExitStack, cell: Cell, pool: ScriptPool | None
    ) -> Loop:
        where = (self.task.short, cell.arm.name, cell.seed)
        folder = run_folder(self.folder, *where)
        rundir.open_run(folder, cell_config(cell), resume=self.resume)
        policy = self.parts.policy(folder, cell.seed, cell.protocol, self.task)
        stack.callback(getattr(policy, "close", lambda: None))
        longest = cell.protocol.sampling.max_prompt_tokens
        stated = None
        if self.settings.stated_limits == "task":
            stated = StatedLimits.of(self.task)
        hooks = make_hooks(
            policy,
            pool,
            self.data,
            self.grader,
            self.limits,
            split=self.split,
            style=self.settings.style,
            count_tokens=self.parts.count,
            max_prompt_tokens=longest,
            stated=stated,
        )
        if self.parts.describer is not None:
            hooks = hooks._replace(describe=self.parts.describer(self.task, longest))
        loop = Loop(
            folder,
            cell,
            hooks,
            resume=self.resume,
            replay=self.replay and run_folder(self.replay, *where),
            clock=self.parts.clock,
        )
        stack.enter_context(loop)
        if self.parts.park:
            policy.park()
        if loop.repaired:
            self.watcher.note(
                f"{cell.name}: a killed process had left half a line "
                f"({loop.repaired} bytes); it was cut off"
            )
        return loop

    def _begin_step(self, loop: Loop) -> None:
        """Bring the policy's state back if another's had its place.

        Between steps, so that moving it is on no run's clock.
        """
        if self.parts.park and self._awake is not loop.hooks.policy:
            if self._awake is not None:
                self._awake.park()
            self._awake = loop.hooks.policy
            self._awake.wake()
        self.watcher.begin_step(loop)

    def _final(self, loops: list[Loop], pool: ScriptPool) -> int:
        grader = self._grader("test")
        room = script_limits(self.data, grader).submission_mb
        limits = dataclasses.replace(self.limits, submission_mb=room)
        scoring = FinalScoring(self.data, grader, limits, pool, self.settings.final)
        runs = [(loop.folder, loop.next_step) for loop in loops]
        return scoring.score(runs, self.watcher.final)
