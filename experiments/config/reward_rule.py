"""How an attempt is rewarded and charged: the switches."""

from __future__ import annotations

import dataclasses
import math

from experiments.config import plain

REWARDS = ("gain", "raw", "paper")
#: Of speedruns, see ``experiments.config.crossing``.
CROSSINGS = ("crossing", "time-saved", "paper-crossing", "paper-crossing-vanilla")
FAILURE_CHARGES = ("measured", "slowest", "limit")
CLOCKS = ("attempt", "execution")
SCRIPT_CLOCKS = ("wall", "cpu")

# The paper: a valid script that beats the best so far earns this much more.
PAPER_BONUS = 0.5
PAPER_FAILURE = -10.0


@dataclasses.dataclass(frozen=True)
class RewardRule:
    """How an attempt is rewarded and charged.

    Attributes:
        kind: ``gain`` (default), ``raw`` (the oriented metric; see
            ``rpg_tasks.scores`` for why not) or ``paper`` (raw metric for
            higher-is-better tasks, leaderboard percentile for the others,
            ``PAPER_BONUS`` for a new best); of a speedrun one of ``CROSSINGS``.
        failure_penalty: what a failed attempt loses; its reward is minus this. The
            paper's rule has its own (``PAPER_FAILURE``).
        failure_charge: seconds charged to a failure in its relative reward:
            ``measured``, ``slowest`` (at least the batch's slowest valid attempt, so
            that a failure never outranks a valid script) or ``limit``.
        clock: ``attempt`` (generation + execution) or ``execution``.
        script_clock: execution seconds are the sandbox's ``wall`` time of the script,
            or its ``cpu`` time. Generation is wall time under both.
    """

    kind: str = "gain"
    failure_penalty: float = 0.0
    failure_charge: str = "slowest"
    clock: str = "attempt"
    script_clock: str = plain.later("wall")

    def __post_init__(self) -> None:
        for value, choices, name in (
            (self.kind, (*REWARDS, *CROSSINGS), "reward"),
            (self.failure_charge, FAILURE_CHARGES, "failure charge"),
            (self.clock, CLOCKS, "time"),
            (self.script_clock, SCRIPT_CLOCKS, "clock"),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {value!r}")
        if not (math.isfinite(self.failure_penalty) and self.failure_penalty >= 0):
            raise ValueError(
                f"failure penalty must be finite and >= 0, got {self.failure_penalty}"
            )


PAPER_RULE = RewardRule(kind="paper", failure_charge="limit", clock="execution")
