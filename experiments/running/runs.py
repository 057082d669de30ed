"""All runs of one task: every arm and seed, interleaved, then the last test."""

from __future__ import annotations

import contextlib
from pathlib import Path

from experiments.answers import AnswerForm, get_form
from experiments.config.arms import Arm
from experiments.config.budget import Budget
from experiments.config.errors import Diverged, LoopError
from experiments.loop.algorithm import Loop
from experiments.loop.hooks import Hooks
from experiments.loop.turns import run
from experiments.menus import part_edits
from experiments.policies import random_edits
from experiments.policies.base import Parks, Policy
from experiments.records import rundir
from experiments.records.results import run_folder
from experiments.records.spec import RunSpec, run_config
from experiments.running.experiment import Describer, Experiment
from rpg_tasks.registry import Task
from rpg_tasks.speedrun.record import Speedrun
from sandbox_exec.protocol import ScriptPool


class Runs:
    """The runs of one task or speedrun; what is particular to either is below it.

    Args:
        experiment: that they belong to.
        goal: the task or speedrun.
    """

    def __init__(self, experiment: Experiment, goal: Task | Speedrun):
        self.experiment, self.goal = experiment, goal
        self.settings, self.parts = experiment.settings, experiment.parts
        self.watcher = experiment.screen
        self._awake: Parks | None = None

    def specs(self) -> list[RunSpec]:
        """The runs: equal in everything but arm and seed."""
        raise NotImplementedError

    def hooks(
        self, policy: Policy, spec: RunSpec, folder: Path, pool: ScriptPool | None
    ) -> Hooks:
        """What a run's loop is given."""
        raise NotImplementedError

    def final(self, loops: list[Loop], pool: ScriptPool) -> int:
        """The last test; how many scripts' scores the machinery lost."""
        raise NotImplementedError

    def run(self) -> int:
        """Run to the end of the budget, then the last test.

        Returns:
            How many scripts' test scores the machinery lost.

        Raises:
            LoopError, TaskError: one line; what was recorded is safe.
            Stopped, KeyboardInterrupt: Ctrl-C.
        """
        specs = self.specs()
        budget = self.settings.budget
        if self.experiment.replay is not None:
            # As long as the records go; a run without any is over at once.
            budget = Budget(steps=10**9)
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(self.parts.pool()) if self.parts.pool else None
            self._open(stack, pool)
            loops = [self._loop(stack, spec, pool) for spec in specs]
            self.watcher.begin(self.goal, loops, budget)
            diverged = run(loops, budget, self.watcher.step, self._begin_step)
            lost = 0
            final = self.experiment.replay is None and self.settings.final != "none"
            if final and pool is not None:
                lost = self.final(loops, pool)
        if diverged:
            more = f" (and {len(diverged) - 1} more)" if diverged[1:] else ""
            raise Diverged(f"{diverged[0]}{more}")
        return lost

    def _open(self, stack: contextlib.ExitStack, pool: ScriptPool | None) -> None:
        """Open what all runs share beside the pool."""

    def _loop(
        self, stack: contextlib.ExitStack, spec: RunSpec, pool: ScriptPool | None
    ) -> Loop:
        where = (self.goal.short, spec.arm.name, spec.seed)
        folder = run_folder(self.experiment.places.out, *where)
        rundir.open_run(folder, run_config(spec), resume=self.experiment.resume)
        policy = self._policy(folder, spec)
        stack.callback(getattr(policy, "close", lambda: None))
        hooks = self.hooks(policy, spec, folder, pool)
        describer = self._describer(spec.arm)
        if describer is not None:
            longest = spec.protocol.sampling.max_prompt_tokens
            hooks = hooks._replace(describe=describer(self.goal, longest))
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
            return random_edits.random_edits(folder, spec.seed, self.goal)
        return self.parts.policy(folder, spec.seed, spec.protocol, self.goal)

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
            return get_form(name).bind(self.goal)
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
