"""``grade``: a submission file in, a verdict out.

>>> from rpg_tasks import grade
>>> grade("spooky-author", "submission.csv", "answers.csv")  # doctest: +SKIP
Grade(valid=True, score=0.469, reason=None, gain=0.566, medal=None, ...)
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from rpg_tasks import archives, graders, scores
from rpg_tasks.advice import advice
from rpg_tasks.registry import get_task
from rpg_tasks.submission import (
    InvalidSubmission,
    Table,
    distinct_ids,
    parse_csv,
    parse_submission,
    read_answers,
    read_submission,
    size_limit,
)
from rpg_tasks.task import Task, TaskError


@dataclasses.dataclass(frozen=True)
class Grade:
    """The verdict on one submission.

    Attributes:
        valid: whether there is a score.
        score: in metric units; None when invalid.
        reason: why it is invalid; None when valid.
        gain: share of the way from the sample submission to a perfect score, in [0, 1];
            0 when invalid; None when the sample submission's score is not known.
        medal: ``gold``, ``silver``, ``bronze`` by the real leaderboard, or None; None
            too where the task has no leaderboard.
        above_median: whether the score reaches the real leaderboard's median.
        status: ``score``, or how it failed: ``invalid``, ``error``, ``nan``.
        baseline: the sample submission's score on the same answers, if known.
        facts: what else belongs on an attempt's record.
    """

    valid: bool
    score: float | None
    reason: str | None
    gain: float | None
    medal: str | None
    above_median: bool = False
    status: str = "score"
    baseline: float | None = None
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def sample_frame(task: Task, answers: pd.DataFrame) -> pd.DataFrame | None:
    """What the sample submission predicts, built for these answers' rows.

    Returns:
        A submission, or None where the sample copies an input column (text
        normalisation), which answers alone cannot tell.
    """
    targets = graders.target_columns(task, answers)
    frame = pd.DataFrame(index=answers.index)
    if task.id_column in answers.columns:
        frame[task.id_column] = answers[task.id_column]
    values = {}
    for name in targets:
        value = task.sample.get(name, task.sample.get("all"))
        if value is None or value == "copy":
            return None
        values[name] = 1.0 / len(targets) if value == "uniform" else value
    constants = pd.DataFrame(values, index=answers.index, columns=targets)
    return pd.concat([frame, constants], axis=1)


class Grader:
    """Grades many submissions of one task against the same answers.

    Args:
        task: task or its name.
        answers_path: the answers, a CSV file.
        sample_path: the sample submission of the same rows (a CSV file or a zip with
            one); without it the sample is rebuilt from the task's record.

    Raises:
        TaskError: unknown task; answers or sample missing, unreadable or not this
        task's.
    """

    def __init__(
        self,
        task: Task | str,
        answers_path: str | os.PathLike[str],
        sample_path: str | os.PathLike[str] | None = None,
    ):
        self.task = get_task(task)
        graders.check_grading(self.task)
        self.answers = read_answers(answers_path)
        self.limit_bytes = size_limit(len(self.answers.data))
        self.baseline = self._baseline(sample_path)

    def _baseline(self, sample_path: str | os.PathLike[str] | None) -> float | None:
        if sample_path is None:
            frame = sample_frame(self.task, self.answers.frame)
            if frame is None:
                return None
        else:
            try:
                data = archives.read_file(sample_path)
                frame = parse_csv(data, Path(sample_path).name)
            except (InvalidSubmission, OSError) as error:
                raise TaskError(
                    f"the sample submission {sample_path} cannot be read: {error}"
                ) from error
        try:
            return graders.score_tables(self.task, frame, self.answers.frame)
        except InvalidSubmission as error:
            if error.status == "nan" or sample_path is None:
                return None  # the answers give no score to anything constant
            raise TaskError(
                f"the sample submission {sample_path} does not fit the answers: {error}"
            ) from error

    def score(self, table: Table) -> float:
        """The score of a parsed submission; see ``graders.score_tables``."""
        table, answers = distinct_ids(table, self.answers, self.task.id_column)
        return graders.score_tables(self.task, table.frame, answers.frame)

    def _reason(self, error: InvalidSubmission, table: Table | None) -> str:
        """Why a table was refused, and what to do where that is plain."""
        if table is None:
            return str(error)
        todo = advice(self.task, table.frame, self.answers.frame)
        if not todo:
            return str(error)
        # The metric's own error says less than what it tripped over.
        return f"{todo} ({error})" if error.status == "error" else f"{error}: {todo}"

    def grade(self, submission_path: str | os.PathLike[str]) -> Grade:
        """The verdict on a file; a bad file is a verdict, not an exception."""
        return self._verdict(lambda: read_submission(submission_path, self.limit_bytes))

    def grade_bytes(self, data: bytes, name: str = "submission.csv") -> Grade:
        """The verdict on a submission that was already collected.

        Args:
            data: the file's bytes.
            name: how reasons call it.
        """
        return self._verdict(lambda: parse_submission(data, name, self.limit_bytes))

    def _verdict(self, read: Callable[[], Table]) -> Grade:
        table: Table | None = None
        try:
            table = read()
            score = self.score(table)
        except InvalidSubmission as error:
            known = self.baseline is not None
            return Grade(
                valid=False,
                score=None,
                reason=self._reason(error, table),
                gain=0.0 if known else None,
                medal=None,
                status=error.status,
                baseline=self.baseline,
            )
        return Grade(
            valid=True,
            score=score,
            reason=None,
            gain=(
                None
                if self.baseline is None
                else scores.gain(self.task, score, self.baseline)
            ),
            medal=scores.medal(self.task, score),
            above_median=scores.above_median(self.task, score),
            baseline=self.baseline,
        )


def grade(
    task: Task | str,
    submission_path: str | os.PathLike[str],
    answers_path: str | os.PathLike[str] | None = None,
    *,
    sample_path: str | os.PathLike[str] | None = None,
) -> Grade:
    """Grade one submission as MLE-Bench would.

    Args:
        task: task or its name.
        submission_path: the file to grade; anything wrong with it is a verdict.
        answers_path: the answers; without it those of the prepared validation split.
        sample_path: the sample submission that the gain is measured from; without it
            the prepared one, or what the task's record says it predicts.

    Raises:
        TaskError: unknown task, or answers that cannot be read: nothing was graded.
    """
    task = get_task(task)
    if answers_path is None:
        from rpg_tasks.mlebench import choose_source
        from rpg_tasks.prepare import prepare_task

        data = prepare_task(task, data=choose_source(task))
        answers_path = data.answers
        if sample_path is None:
            sample_path = data.public / task.sample_file
    return Grader(task, answers_path, sample_path).grade(submission_path)
