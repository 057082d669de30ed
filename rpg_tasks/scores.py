"""What a score is worth: gain, percentile, medals.

A reward *rate* needs a zero. With r = -loss every script earns a negative rate, time is
paid for, and the worse and slower of two scripts wins; with a raw AUC, copying the
sample submission in 0.3 s earns more per second than any model. The default reward is
therefore the gain over the sample submission: 0 for a copy, 1 for a perfect answer,
never negative.

Orientation (is a higher score better?) is decided in ``oriented`` and nowhere else.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from rpg_tasks.goal import Goal
from rpg_tasks.task import Task, TaskError

# MLE-Bench rounds a score to this many digits before it compares it with a threshold.
_MEDAL_DIGITS = 5


def oriented(task: Goal, score: float) -> float:
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


def _reaches(task: Goal, score: float, threshold: float) -> bool:
    own, other = round(score, _MEDAL_DIGITS), round(threshold, _MEDAL_DIGITS)
    return oriented(task, own) >= oriented(task, other)


def medal(task: Goal, score: float) -> str | None:
    """``gold``, ``silver``, ``bronze`` by the real leaderboard, or None."""
    if task.medals is None:
        return None
    for name in ("gold", "silver", "bronze"):
        if _reaches(task, score, getattr(task.medals, name)):
            return name
    return None


def above_median(task: Goal, score: float) -> bool:
    """Whether the score reaches the real leaderboard's median; False without one."""
    return task.medals is not None and _reaches(task, score, task.medals.median)
