"""What a report is made from: the columns of a run's records, and several runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.config.reward_rule import RewardRule
from experiments.reporting.noise import baseline_score
from experiments.reporting.wording import is_speedrun
from rpg_tasks.goal import Goal
from rpg_tasks.speedrun.record import Speedrun

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

STATUSES = ("valid", "missed", "invalid", "failed", "no_script", "infrastructure")


def rule_of(config: Mapping[str, Any]) -> RewardRule:
    """The protocol's reward rule as a run's config.json has it."""
    rule = config.get("protocol", {})
    rule = rule.get("rule", {}) if isinstance(rule, dict) else {}
    known = {field.name for field in dataclasses.fields(RewardRule)}
    return RewardRule(**{k: v for k, v in rule.items() if k in known})


class ReportError(ValueError):
    """The folders give no report; the message says why."""


@dataclasses.dataclass(frozen=True)
class Attempts:
    """Columns of attempts.jsonl, ordered by step and chain; NaN where there is none.

    Attributes:
        run_id: of each attempt.
        parent: run_id of the attempt that it improves on; None: the base prompt.
        status: one of ``STATUSES``.
        script: digest of the script.
        program: digest of what it does; comments do not count.
        reason: why it has no score.
        offset: byte in the file.
        step: from 0.
        chain: from 0.
        score: metric units.
        value: reward without penalty or bonus; 0 for a failure.
        reward: with penalty or bonus.
        delta_s: seconds on the rule's clock.
        execution_s: seconds of the script.
        generation_s: seconds of the answer.
        repeat: whether the program had been run before in the run: it was not run
            again, takes no execution seconds and earns nothing.
        loss: of a speedrun's model, nats a token.
        isolation: levels of the sandbox.
        cpu_models: that scripts ran on, where they are on record.
        executed: attempts whose script was run.
        contended: those whose core did other work too.
        spent_s: execution seconds of all attempts, disturbed runs included.
        disturbed_s: those of them in which other work disturbed a script.
        left_out: attempts of a step that was not finished.
    """

    run_id: list[str]
    parent: list[str | None]
    status: list[str]
    script: list[str | None]
    program: list[str | None]
    reason: list[str | None]
    offset: Ints
    step: Ints
    chain: Ints
    score: Floats
    value: Floats
    reward: Floats
    delta_s: Floats
    execution_s: Floats
    generation_s: Floats
    repeat: Bools
    loss: Floats
    isolation: frozenset[str]
    cpu_models: frozenset[str]
    executed: int
    contended: int
    spent_s: float
    disturbed_s: float
    left_out: int

    def __len__(self) -> int:
        return len(self.run_id)

    @property
    def known(self) -> Bools:
        """Attempts that the machinery did not lose."""
        return np.isfinite(self.delta_s)

    @property
    def valid(self) -> Bools:
        """Attempts with a score."""
        return np.array([s == "valid" for s in self.status], np.bool_)

    @property
    def run(self) -> Bools:
        """Attempts that the machinery did not lose and that are no repeats."""
        return self.known & ~self.repeat

    @property
    def earned(self) -> Floats:
        """What counts in reward/s: ``value``, and nothing for a repeat."""
        return np.where(self.repeat, 0.0, self.value)


@dataclasses.dataclass(frozen=True)
class RunRecords:
    """The records of one run (one task, arm and seed), as far as it got.

    Attributes:
        folder: of the records.
        root: folder of the experiment that it belongs to (itself, if given alone).
        task: the task.
        arm: name.
        seed: of the policy's sampling.
        config: the ``config`` of its config.json.
        attempts: of the committed steps. A step that was stopped has only its fast
            scripts on record: counting them would favour speed.
        steps: committed steps.
        skipped: those whose update was skipped.
        metrics: columns of metrics.jsonl, shape [steps]; NaN where there is none.
        final: records of the private test.
        progress: share of the budget used, None where no budget is on record.
    """

    folder: Path
    root: Path
    task: Goal
    arm: str
    seed: int
    config: dict[str, Any]
    attempts: Attempts
    steps: int
    skipped: int
    metrics: dict[str, Floats]
    final: list[dict[str, Any]]
    progress: float | None

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.task.short}/{self.arm}/seed-{self.seed}"

    @property
    def baseline(self) -> float:
        """The score to begin with: the sample submission's, or the baseline's."""
        value = self.config.get("baseline")
        if value is None and isinstance(self.task, Speedrun):
            return baseline_score(self.root, self.task, rule_of(self.config))
        return math.nan if value is None else float(value)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that a report is made from.

    Attributes:
        runs: in the order of tasks (paper's table), arms, seeds.
        headers: config.json of every experiment's folder.
        roots: these folders.
        unfinished: what is missing, one line each.
    """

    runs: list[RunRecords]
    headers: list[dict[str, Any]]
    roots: list[Path]
    unfinished: list[str]

    @property
    def tasks(self) -> list[Goal]:
        """Tasks with a finished step."""
        return list({run.task.short: run.task for run in self.runs}.values())

    @property
    def speedrun(self) -> bool:
        """Whether seconds to a target are compared, not scores."""
        return any(is_speedrun(run.task) for run in self.runs)

    def arms(self, task: Goal | None = None) -> list[str]:
        """Arms with a finished step (of a task)."""
        runs = [r for r in self.runs if task is None or r.task.short == task.short]
        return list(dict.fromkeys(run.arm for run in runs))

    def of(self, task: Goal, arm: str) -> list[RunRecords]:
        """The seeds of a task and arm."""
        return [r for r in self.runs if r.task.short == task.short and r.arm == arm]
