"""What one run is: task, arm, seed and what they share under a protocol."""

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from experiments.config.arms import Arm
from experiments.config.budget import Budget
from experiments.config.plain import to_plain
from experiments.config.protocol import Protocol
from experiments.config.reward_rule import RewardRule
from experiments.config.virtual import Virtual
from experiments.records.rewards import attempt_reward
from rpg_tasks.goal import Goal
from rpg_tasks.registry import Task


@dataclasses.dataclass(frozen=True)
class Scoring:
    """What turns a score into a reward.

    Attributes:
        task: the task.
        rule: the protocol's reward rule.
        baseline: the sample submission's score on the same answers.
        leaderboard: all teams' scores, for the paper's reward.
    """

    task: Goal
    rule: RewardRule
    baseline: float | None = None
    leaderboard: np.ndarray | None = None

    #: Whether the same script has another outcome when it is run again.
    noisy: ClassVar[bool] = False

    def reward(
        self,
        score: float | None,
        best: float | None,
        fields: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[float, float]:
        """(reward, value): with and without the bonus for beating ``best``.

        A failure has a value of 0: that is what it adds to a rate.

        Args:
            score: metric units; None without one.
            best: best value of earlier steps.
            fields: what else is on the attempt's record.
        """
        reward = self._reward(score, best)
        return reward, 0.0 if score is None else self._reward(score, math.inf)

    def _reward(self, score: float | None, best: float | None) -> float:
        assert isinstance(self.task, Task)
        return attempt_reward(
            self.rule,
            self.task,
            score,
            best=best,
            baseline=self.baseline,
            leaderboard=self.leaderboard,
        )


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """One run: a task, an arm and a seed under a protocol.

    Attributes:
        arm: its switches.
        protocol: what all arms share.
        scoring: task and reward.
        seed: of the policy's sampling.
        limit_s: wall limit of a script, seconds.
        silence_s: when no script has finished for this long, what still runs counts as
            lost; None allows four times the limit and two minutes.
        checkpoint_every: steps between two checkpoints of the policy.
        budget: of the run, where something depends on what is left of it (the k of
            max-at-k); None: no end is known.
        virtual: the clock, where executions come from a table; None: they are real.
    """

    arm: Arm
    protocol: Protocol
    scoring: Scoring
    seed: int = 0
    limit_s: float = 600.0
    silence_s: float | None = None
    checkpoint_every: int = 1
    budget: Budget | None = None
    virtual: Virtual | None = None

    @property
    def name(self) -> str:
        """Identifies the run among those of an experiment."""
        return f"{self.scoring.task.short}-{self.arm.name}-s{self.seed}"

    @property
    def patience_s(self) -> float:
        """``silence_s``, or its default."""
        return self.silence_s or 4 * self.limit_s + 120.0


def run_config(spec: RunSpec) -> dict[str, Any]:
    """What identifies a run, for ``config.json``, in plain types.

    The budget is not part of it: it may grow.
    """
    config: dict[str, Any] = {
        "task": spec.scoring.task.short,
        "arm": to_plain(spec.arm),
        "protocol": to_plain(spec.protocol),
        "seed": spec.seed,
        "limit_s": spec.limit_s,
        "baseline": spec.scoring.baseline,
        "leaderboard": spec.scoring.leaderboard is not None,
    }
    if spec.virtual is not None:
        # A table may move; what it is charged by may not.
        config["virtual"] = to_plain(spec.virtual) | {"table": "yes"}
    return config
