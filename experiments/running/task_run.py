"""All runs of one task: every arm and seed, interleaved, then the private test."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.answers import AnswerForm, get_form
from experiments.config.arms import Arm
from experiments.config.budget import Budget
from experiments.config.errors import Diverged, LoopError
from experiments.config.settings import Settings
from experiments.loop.algorithm import Loop
from experiments.loop.turns import run
from experiments.menus import part_edits
from experiments.policies import random_edits
from experiments.policies.base import Parks, Policy
from experiments.records import rundir
from experiments.records.results import run_folder
from experiments.records.spec import RunSpec, Scoring, run_config
from experiments.running.experiment import Describer, Experiment
from experiments.running.final import FinalScoring
from experiments.running.wiring import make_hooks, script_limits
from rpg_tasks.prompts import StatedLimits
from rpg_tasks.registry import Task, TaskError
from sandbox_exec.protocol import ScriptPool

if TYPE_CHECKING:  # scikit-learn is slow to import
    from experiments.running.table_runs import TableRuns
    from rpg_tasks.grading import Grader


def specs_of(
    settings: Settings, task: Task, grader: Grader, leaderboard: Any
) -> list[RunSpec]:
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
        RunSpec(
            arm=arm,
            protocol=protocol,
            scoring=Scoring(task, protocol.rule, grader.baseline, leaderboard),
            seed=seed,
            limit_s=settings.limit_s(task),
            checkpoint_every=settings.machine.checkpoint_every,
            budget=settings.budget,
            virtual=settings.virtual,
        )
        for at, seed in enumerate(settings.seeds)
        # The first of equals begins; whatever that is worth goes round by seed.
        for arm in settings.arms[:: -1 if at % 2 else 1]
    ]


class TaskRun:
    """One task of an experiment.

    Args:
        experiment: that it belongs to.
        task: the task.
        source: of its data.
    """

    def __init__(self, experiment: Experiment, task: Task, source: str):
        self.experiment, self.task = experiment, task
        self.settings, self.parts = experiment.settings, experiment.parts
        self.watcher = experiment.screen
        settings = self.settings
        self._awake: Parks | None = None
        self._table: TableRuns | None = None
        self.data = self.parts.prepare(task, source)
        self.split = settings.protocol.reward_split
        self.grader = self._grader(self.split)
        self.limits = script_limits(
            self.data,
            self.grader,
            limit_s=settings.limit_s(task),
            script_clock=settings.protocol.rule.script_clock,
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
        specs = specs_of(self.settings, self.task, self.grader, leaderboard)
        budget = self.settings.budget
        if self.experiment.replay is not None:
            # As long as the records go; a run without any is over at once.
            budget = Budget(steps=10**9)
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(self.parts.pool()) if self.parts.pool else None
            self._open_table(stack, pool)
            loops = [self._loop(stack, spec, pool) for spec in specs]
            self.watcher.begin(self.task, loops, budget)
            diverged = run(loops, budget, self.watcher.step, self._begin_step)
            lost = 0
            final = self.experiment.replay is None and self.settings.final != "none"
            if final and pool is not None:
                lost = self._final(loops, pool)
        if diverged:
            more = f" (and {len(diverged) - 1} more)" if diverged[1:] else ""
            raise Diverged(f"{diverged[0]}{more}")
        return lost

    def _open_table(self, stack: contextlib.ExitStack, pool: ScriptPool | None) -> None:
        virtual = self.settings.virtual
        if virtual is None or pool is None:
            return
        from experiments.running.table_runs import TableRuns, open_table

        table = open_table(self.settings, self.data, self.limits, pool, self.split)
        self._table = TableRuns(table, virtual.runs)
        stack.callback(self._table.close)

    def _loop(
        self, stack: contextlib.ExitStack, spec: RunSpec, pool: ScriptPool | None
    ) -> Loop:
        where = (self.task.short, spec.arm.name, spec.seed)
        folder = run_folder(self.experiment.places.out, *where)
        rundir.open_run(folder, run_config(spec), resume=self.experiment.resume)
        policy = self._policy(folder, spec)
        stack.callback(getattr(policy, "close", lambda: None))
        longest = spec.protocol.sampling.max_prompt_tokens
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
            count_tokens=self.parts.count_tokens,
            max_prompt_tokens=longest,
            stated=stated,
            form=self._form(spec.arm),
        )
        describer = self._describer(spec.arm)
        if describer is not None:
            hooks = hooks._replace(describe=describer(self.task, longest))
        if self._table is not None:
            hooks = self._table.hooks(hooks)
        replay = self.experiment.replay
        loop = Loop(
            folder,
            spec,
            hooks,
            resume=self.experiment.resume,
            replay=replay and run_folder(replay, *where),
            clock=self.parts.clock,
        )
        stack.enter_context(loop)
        if self.parts.park and isinstance(policy, Parks):
            policy.park()
        if loop.repaired:
            self.watcher.note(
                f"{spec.name}: a killed process had left half a line "
                f"({loop.repaired} bytes); it was cut off"
            )
        return loop

    def _policy(self, folder: Path, spec: RunSpec) -> Policy:
        if spec.arm.policy == random_edits.NAME:
            return random_edits.random_edits(folder, spec.seed, self.task)
        return self.parts.policy(folder, spec.seed, spec.protocol, self.task)

    def _describer(self, arm: Arm) -> Describer | None:
        if arm.policy == random_edits.NAME:
            return random_edits.describer
        return self.parts.describer

    def _form(self, arm: Arm) -> AnswerForm:
        """The form of answers, reading them with what it needs of this task."""
        name = self.settings.answer_form
        if arm.policy == random_edits.NAME:
            name = part_edits.NAME
        try:
            return get_form(name).bind(self.task)
        except ValueError as error:
            raise LoopError(str(error)) from None

    def _begin_step(self, loop: Loop) -> None:
        """Bring the policy's state back if another's had its place.

        Between steps, so that moving it is on no run's clock.
        """
        policy = loop.hooks.policy
        if not (self.parts.park and isinstance(policy, Parks)):
            pass
        elif self._awake is not policy:
            if self._awake is not None:
                self._awake.park()
            policy.wake()
            self._awake = policy
        self.watcher.begin_step(loop)

    def _final(self, loops: list[Loop], pool: ScriptPool) -> int:
        grader = self._grader("test")
        room = script_limits(self.data, grader).submission_mb
        limits = dataclasses.replace(self.limits, submission_mb=room)
        scoring = FinalScoring(self.data, grader, limits, pool, self.settings.final)
        runs = [(loop.folder, loop.next_step) for loop in loops]
        return scoring.score(runs, self.watcher.final)
