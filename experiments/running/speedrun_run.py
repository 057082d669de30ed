"""The runs of a speedrun: scripts train, the harness verifies, seconds count."""

from __future__ import annotations

import contextlib
import dataclasses
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.config.arms import Arm
from experiments.config.crossing import VANILLA_TIME
from experiments.config.errors import LoopError
from experiments.config.protocol import Protocol
from experiments.loop.algorithm import Loop
from experiments.loop.hooks import Hooks
from experiments.policies.base import Policy
from experiments.records.crossing import CrossingScoring
from experiments.records.spec import RunSpec
from experiments.running.experiment import Experiment
from experiments.running.runs import Runs
from experiments.running.speedrun_final import SpeedrunFinal
from experiments.running.speedrun_prompt import baseline_form, baseline_of, describer
from experiments.running.speedrun_work import Attempts, grade_run, training_job
from rpg_tasks.speedrun.data import prepare_speedrun
from rpg_tasks.speedrun.record import Speedrun
from rpg_tasks.speedrun.verify import Verifier
from sandbox_exec.limits import Limits
from sandbox_exec.protocol import RunRecord, ScriptPool

if TYPE_CHECKING:  # scikit-learn is slow to import
    from rpg_tasks.grading import Grade


def protocol_for(arm: Arm, protocol: Protocol) -> Protocol:
    """The protocol with the reward that an arm learns from.

    The best of max@k is a time, and so is what ``vanilla-time`` is paid for; under
    ``paper`` an arm without a price has a reward of its own.
    """
    kind = protocol.rule.kind
    if kind == "crossing" and (arm.objective == "max-at-k" or arm == VANILLA_TIME):
        kind = "time-saved"
    elif kind == "paper-crossing" and arm.advantage_price == "none":
        kind = "paper-crossing-vanilla"
    return dataclasses.replace(
        protocol, rule=dataclasses.replace(protocol.rule, kind=kind)
    )


class SpeedrunRun(Runs):
    """One speedrun of an experiment.

    Args:
        experiment: that it belongs to.
        speedrun: what is run.
    """

    def __init__(self, experiment: Experiment, speedrun: Speedrun):
        super().__init__(experiment, speedrun)
        assert self.settings.crossing is not None
        self.speedrun, self.crossing = speedrun, self.settings.crossing
        self.data = prepare_speedrun(speedrun, cache_dir=experiment.places.cache_dir)
        self.limits = Limits(
            wall_s=self.settings.limit_s(speedrun),
            memory_mb=speedrun.memory_mb,
            submission_mb=speedrun.model_mb,
        )
        self._verifying: ScriptPool | None = None
        self._threads: ThreadPoolExecutor | None = None

    def specs(self) -> list[RunSpec]:
        """The runs, arms in turn within a seed."""
        settings = self.settings
        specs = []
        for at, seed in enumerate(settings.seeds):
            for arm in settings.arms[:: -1 if at % 2 else 1]:
                protocol = protocol_for(arm, settings.protocol)
                scoring = CrossingScoring(
                    self.speedrun, protocol.rule, crossing=self.crossing
                )
                specs.append(
                    RunSpec(
                        arm=arm,
                        protocol=protocol,
                        scoring=scoring,
                        seed=seed,
                        limit_s=settings.limit_s(self.speedrun),
                        checkpoint_every=settings.machine.checkpoint_every,
                        budget=settings.budget,
                    )
                )
        return specs

    def _open(self, stack: contextlib.ExitStack, pool: ScriptPool | None) -> None:
        """Slots of its own for verification, and threads that wait for it."""
        if self.parts.verifying is None:
            return
        self._verifying = stack.enter_context(self.parts.verifying())
        self._threads = ThreadPoolExecutor(
            max(1, self._verifying.capacity), thread_name_prefix="verify"
        )
        stack.callback(self._threads.shutdown, wait=False, cancel_futures=True)

    def verifier(self, part: str = "val") -> Verifier:
        """Of ``val`` or ``final``, in the verification slots."""
        assert self._verifying is not None
        return Verifier(
            self.speedrun,
            self.data,
            self._verifying.submit,
            contract=self.crossing.contract,
            part=part,
        )

    def hooks(
        self, policy: Policy, spec: RunSpec, folder: Path, pool: ScriptPool | None
    ) -> Hooks:
        """Scripts that train, verified within the same future."""
        rule, crossing = spec.protocol.rule, self.crossing
        form = baseline_form(self._form(spec.arm), self.speedrun)

        def grade(run: RunRecord) -> Grade:
            return grade_run(run, crossing, rule)

        def no_script(run_id: str, script: bytes) -> Future[RunRecord]:
            raise LoopError("a replay runs no script")

        describe = describer(self.speedrun, crossing, form.how)
        if pool is None or self._threads is None:
            return Hooks(policy, no_script, grade, describe, form)
        job = training_job(
            self.data.inputs, self.speedrun.short, self.limits, self.speedrun.model_file
        )
        execute = Attempts(folder, spec.seed, pool, self.verifier(), self._threads, job)
        return Hooks(policy, execute, grade, describe, form)

    def final(self, loops: list[Loop], pool: ScriptPool) -> int:
        """Each run's best on fresh seeds and the final text."""
        job = training_job(
            self.data.inputs, self.speedrun.short, self.limits, self.speedrun.model_file
        )
        test = SpeedrunFinal(
            pool, self.verifier(), self.verifier("final"), job, self.crossing,
            self.settings.protocol.rule,
        )  # fmt: skip
        lost = 0
        baseline = baseline_of(self.speedrun).encode()
        for line in test.noise_floor(baseline, self.experiment.places.out):
            self.watcher.say(line)
        for loop in loops:
            record, lines = test.score(loop.folder, self.speedrun, loop.next_step)
            lost += record is not None and record["status"] == "infrastructure"
            for line in lines:
                self.watcher.say(f"{loop.spec.name}: {line}")
        return lost
