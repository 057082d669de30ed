"""From a score to a reward, and from a failure to a charge.

A reward *rate* needs a zero. With r = -loss every script earns a negative rate, time is
paid for, and the worse and slower of two scripts wins; with a raw AUC, copying the
sample submission in 0.3 s earns more per second than any model. The default reward is
therefore the gain over the sample submission: 0 for a copy, 1 for a perfect answer,
never negative.

Orientation (is a higher score better?) is decided in ``oriented`` and nowhere else.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path

import numpy as np

from rpg_tasks.registry import Task, TaskError

REWARDS = ("gain", "raw", "paper")
FAILURE_CHARGES = ("measured", "slowest", "limit")
CLOCKS = ("attempt", "execution")

# MLE-Bench rounds a score to this many digits before it compares it with a threshold.
_MEDAL_DIGITS = 5
# The paper: a valid script that beats the best so far earns this much more.
PAPER_BONUS = 0.5
PAPER_FAILURE = -10.0
MIN_SECONDS = 0.1


def oriented(task: Task, score: float) -> float:
    """The score as "higher is better": itself, or its negative for a loss."""
    return score if task.higher_is_better else -score


def gain(task: Task, score: float, baseline: float) -> float:
    """Share of the way from the sample submission to a perfect score, at least 0.

        higher is better: (s - b)+ / (s* - b);  lower is better: (b - s)+ / (b - s*)

    Args:
        task: gives the orientation and the perfect score s*.
        score: s, in metric units.
        baseline: b, the sample submission's score on the same answers.

    Returns:
        A number in [0, 1]; 0 where the sample submission is already perfect.

    Raises:
        ValueError: score or baseline is not finite.
    """
    if not (math.isfinite(score) and math.isfinite(baseline)):
        raise ValueError(f"gain needs finite scores, got {score} over {baseline}")
    above = oriented(task, score) - oriented(task, baseline)
    room = oriented(task, task.perfect_score) - oriented(task, baseline)
    if above <= 0.0 or room <= 0.0:
        return 0.0
    return min(above / room, 1.0)


def percentile(task: Task, score: float, leaderboard: np.ndarray) -> float:
    """Share of leaderboard scores that this score beats, ties counted half.

    Args:
        task: gives the orientation.
        score: in metric units.
        leaderboard: scores of all teams, shape [teams], in metric units.

    Raises:
        ValueError: the leaderboard is empty or the score is not finite.
    """
    board = np.asarray(leaderboard, dtype=np.float64)
    if board.size == 0 or not math.isfinite(score):
        raise ValueError("a percentile needs a finite score and a leaderboard")
    if not task.higher_is_better:
        board = -board
    own = oriented(task, float(score))
    return float(np.mean(own > board) + 0.5 * np.mean(own == board))


def load_leaderboard(path: str | Path) -> np.ndarray:
    """The ``score`` column of a competition's ``leaderboard.csv``, shape [teams].

    Raises:
        TaskError: missing, a Git LFS pointer instead of the file, or without scores.
    """
    path = Path(path)
    hint = (
        "the paper's reward needs MLE-Bench's leaderboard of the competition "
        "(mlebench/competitions/<competition_id>/leaderboard.csv, fetched by "
        "`git lfs pull`)"
    )
    try:
        with path.open(encoding="utf-8", newline="") as file:
            start = file.read(80)
            if start.startswith("version https://git-lfs"):
                raise TaskError(f"{path} is a Git LFS pointer, not the file: {hint}")
            file.seek(0)
            rows = list(csv.DictReader(file))
        scores = [float(row["score"]) for row in rows if row["score"].strip()]
    except FileNotFoundError:
        raise TaskError(f"there is no leaderboard {path}: {hint}") from None
    except (OSError, KeyError, ValueError, AttributeError) as error:
        raise TaskError(
            f"{path} is no leaderboard with a score column: {hint}"
        ) from error
    scores = [score for score in scores if math.isfinite(score)]
    if not scores:
        raise TaskError(f"{path} holds no scores: {hint}")
    return np.asarray(scores, dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class RewardRule:
    """How an attempt is rewarded and charged.

    Attributes:
        kind: ``gain`` (default), ``raw`` (the oriented metric: see the module's
            warning) or ``paper`` (raw metric for higher-is-better tasks, leaderboard
            percentile for the others, ``PAPER_BONUS`` for a new best).
        failure_penalty: what a failed attempt loses; its reward is minus this. The
            paper's rule has its own (``PAPER_FAILURE``).
        failure_charge: seconds charged to a failure in its relative reward:
            ``measured``, ``slowest`` (at least the batch's slowest valid attempt, so
            that a failure never outranks a valid script) or ``limit``.
        clock: ``attempt`` (generation + execution) or ``execution``.
    """

    kind: str = "gain"
    failure_penalty: float = 0.0
    failure_charge: str = "slowest"
    clock: str = "attempt"

    def __post_init__(self):
        for value, choices, name in (
            (self.kind, REWARDS, "reward"),
            (self.failure_charge, FAILURE_CHARGES, "failure charge"),
            (self.clock, CLOCKS, "time"),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {value!r}")
        if not (math.isfinite(self.failure_penalty) and self.failure_penalty >= 0):
            raise ValueError(
                f"failure penalty must be finite and >= 0, got {self.failure_penalty}"
            )


PAPER_RULE = RewardRule(kind="paper", failure_charge="limit", clock="execution")


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
    rule: RewardRule, execution_s: float, generation_s: float = 0.0
) -> float:
    """Seconds of an attempt on the rule's clock, at least ``MIN_SECONDS``."""
    seconds = execution_s + (generation_s if rule.clock == "attempt" else 0.0)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"seconds must be finite and >= 0, got {seconds}")
    return max(seconds, MIN_SECONDS)


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
    if rule.failure_charge == "measured" or valid.all():
        return seconds.copy()
    if rule.failure_charge == "limit":
        floor = float(limit_s)
    else:
        floor = float(seconds[valid].max()) if valid.any() else 0.0
    return np.where(valid, seconds, np.maximum(seconds, floor))


def _reaches(task: Task, score: float, threshold: float) -> bool:
    own, other = round(score, _MEDAL_DIGITS), round(threshold, _MEDAL_DIGITS)
    return oriented(task, own) >= oriented(task, other)


def medal(task: Task, score: float) -> str | None:
    """``gold``, ``silver``, ``bronze`` or None by the real leaderboard."""
    for name in ("gold", "silver", "bronze"):
        if _reaches(task, score, getattr(task.medals, name)):
            return name
    return None


def above_median(task: Task, score: float) -> bool:
    """Whether the score reaches the real leaderboard's median."""
    return _reaches(task, score, task.medals.median)
