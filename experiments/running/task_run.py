"""The runs of a competition, and its private test."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.config.settings import Settings
from experiments.loop.algorithm import Loop
from experiments.loop.hooks import Hooks
from experiments.policies.base import Policy
from experiments.records.spec import RunSpec, Scoring
from experiments.running.experiment import Experiment
from experiments.running.final import FinalScoring
from experiments.running.runs import Runs
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


class TaskRun(Runs):
    """One task of an experiment.

    Args:
        experiment: that it belongs to.
        task: the task.
        source: of its data.
    """

    def __init__(self, experiment: Experiment, task: Task, source: str):
        super().__init__(experiment, task)
        self.task = task
        settings = self.settings
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

    def specs(self) -> list[RunSpec]:
        """See ``specs_of``."""
        leaderboard = self.parts.leaderboard(self.task)
        return specs_of(self.settings, self.task, self.grader, leaderboard)

    def _open(self, stack: contextlib.ExitStack, pool: ScriptPool | None) -> None:
        """The table, where executions come from one."""
        virtual = self.settings.virtual
        if virtual is None or pool is None:
            return
        from experiments.running.table_runs import TableRuns, open_table

        table = open_table(self.settings, self.data, self.limits, pool, self.split)
        self._table = TableRuns(table, virtual.runs)
        stack.callback(self._table.close)

    def hooks(
        self, policy: Policy, spec: RunSpec, folder: Path, pool: ScriptPool | None
    ) -> Hooks:
        """Scripts in the pool, graded on the validation answers."""
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
            max_prompt_tokens=spec.protocol.sampling.max_prompt_tokens,
            stated=stated,
            form=self._form(spec.arm),
        )
        return hooks if self._table is None else self._table.hooks(hooks)

    def final(self, loops: list[Loop], pool: ScriptPool) -> int:
        """The private test of the best scripts."""
        grader = self._grader("test")
        room = script_limits(self.data, grader).submission_mb
        limits = dataclasses.replace(self.limits, submission_mb=room)
        scoring = FinalScoring(self.data, grader, limits, pool, self.settings.final)
        runs = [(loop.folder, loop.next_step) for loop in loops]
        return scoring.score(runs, self.watcher.final)
