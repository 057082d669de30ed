"""From a score to a reward, and from a failure to a charge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from experiments.config.reward_rule import PAPER_BONUS, PAPER_FAILURE, RewardRule
from rpg_jax.rewards import Charge, charged_duration
from rpg_tasks.registry import Task, TaskError
from rpg_tasks.scores import gain, oriented, percentile

MIN_SECONDS = 0.1


def attempt_reward(
    rule: RewardRule,
    task: Task,
    score: float | None,
    *,
    baseline: float | None = None,
    leaderboard: np.ndarray | None = None,
    best: float | None = None,
) -> float:
    """The reward of one attempt.

    Args:
        rule: which reward.
        task: the task.
        score: the graded score in metric units; None for a failed or invalid attempt.
        baseline: the sample submission's score (``gain``).
        leaderboard: all teams' scores (``paper``, lower-is-better tasks).
        best: the best *reward before bonus* so far under the paper's rule, if any.

    Raises:
        TaskError: the rule needs a baseline or a leaderboard that is not there; there
            is no silent fallback to another reward.
    """
    if score is None:
        return PAPER_FAILURE if rule.kind == "paper" else -rule.failure_penalty
    if rule.kind == "raw":
        return oriented(task, score)
    if rule.kind == "gain":
        if baseline is None:
            raise TaskError(
                f"{task.short}: the gain needs the sample submission's score on the "
                "same answers"
            )
        return gain(task, score, baseline)
    if task.higher_is_better:
        value = score
    elif leaderboard is None:
        raise TaskError(
            f"{task.short}: the paper's reward is a leaderboard percentile here: give "
            "its leaderboard.csv, or choose --reward=gain"
        )
    else:
        value = percentile(task, score, leaderboard)
    return value + (PAPER_BONUS if best is None or value > best else 0.0)


def attempt_seconds(
    rule: RewardRule, script_s: float, generation_s: float = 0.0
) -> float:
    """Seconds of an attempt on the rule's clock, at least ``MIN_SECONDS``."""
    seconds = script_s + (generation_s if rule.clock == "attempt" else 0.0)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"seconds must be finite and >= 0, got {seconds}")
    return max(seconds, MIN_SECONDS)


def seconds_of(rule: RewardRule, record: Mapping[str, Any]) -> float:
    """Seconds that a recorded attempt pays for, on the rule's clocks.

    Args:
        rule: wall or CPU seconds of the script, with generation or without.
        record: has ``execution_s``, ``generation_s`` and, where a script was run,
            ``cpu_s``.
    """
    script_s = record["execution_s"]
    if rule.script_clock == "cpu":
        script_s = record.get("cpu_s", 0.0)  # nothing was run: nothing was used
    return attempt_seconds(rule, script_s, record["generation_s"])


def charged_seconds(
    rule: RewardRule, seconds: np.ndarray, valid: np.ndarray, limit_s: float
) -> np.ndarray:
    """Seconds that enter each attempt's *relative reward*; measured time stays as it
    is.

    With ``slowest``, r_failure - rate * charge <= r_valid - rate * delta for every
    valid attempt of the batch, for any rate >= 0.

    Args:
        rule: the failure charge.
        seconds: measured seconds, shape [B].
        valid: whether the attempt was graded, shape [B].
        limit_s: wall limit of a script, seconds.

    Returns:
        Charged seconds, shape [B], float64.
    """
    seconds = np.asarray(seconds, dtype=np.float64)
    valid = np.asarray(valid, dtype=bool)
    if seconds.shape != valid.shape:
        raise ValueError(f"shapes differ: {seconds.shape} and {valid.shape}")
    charged = charged_duration(
        seconds, ~valid, charge=cast(Charge, rule.failure_charge), limit=float(limit_s)
    )
    return charged.copy()
