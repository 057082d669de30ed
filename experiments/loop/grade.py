"""One attempt's record: what was written, run and graded, and what it earned.

Statuses: ``valid``; ``invalid`` (the script ended, its submission was refused or earned
no usable number); ``missed`` (a speedrun's model that does not reach the target);
``failed`` (it crashed, hung or was stopped); ``no_script`` (the answer holds none);
``infrastructure`` (the sandbox or the grader failed: no reward, no seconds, no data).
"""

import math
from collections.abc import Callable
from typing import Any

from experiments.records.recorded import INFRASTRUCTURE, MISSED, NO_SCRIPT
from experiments.records.rewards import seconds_of
from experiments.records.spec import Scoring
from sandbox_exec.protocol import RunRecord

_TEXT = 2000  # characters of each output that a record keeps
# Sums of squares of more are no float32: one such raw score would stop the run for
# ever, as its record is read again by every resume.
_MOST = 1e12
_NO_CPU_TIME = (
    "sandbox: the run's CPU time (cpu_s) was not measured, and --clock=cpu pays by it; "
    "--clock=wall does not need it"
)
_OF_A_SCORE = ("medal", "above_median")


def without_script(reason: str) -> dict[str, Any]:
    """Fields of an answer that holds no script; it took no execution time."""
    return {"status": NO_SCRIPT, "reason": reason, "execution_s": 0.0}


def infrastructure(reason: str) -> dict[str, Any]:
    """Fields of an attempt that the machinery lost."""
    return {"status": INFRASTRUCTURE, "reason": " ".join(reason.split())[:_TEXT]}


def outcome(
    run: RunRecord, grade: Callable[[RunRecord], Any]
) -> tuple[dict[str, Any], float | None]:
    """What became of a run: fields of its record, and its score if it has one.

    Args:
        run: the sandbox's record.
        grade: called for a run that ended by itself and left a submission; returns a
            ``Grade``. Whatever it raises is the machinery's fault, not the script's.
    """
    if run.status == "sandbox_error":
        return infrastructure(
            f"sandbox: {run.error or run.killed_by or 'failed'}"
        ), None
    if not (math.isfinite(run.delta_s) and run.delta_s >= 0):
        return infrastructure(f"sandbox: a run of {run.delta_s} s"), None
    fields: dict[str, Any] = {
        "execution_s": float(run.delta_s),
        # A record that does not say how it was measured has none.
        "cpu_s": run.cpu_s if run.cpu_source or run.cpu_s else None,
        "queue_s": run.queue_s,
        "contended": run.slot.contended,
        "isolation": run.isolation.level,
        "execution": run.status,
        "exit_code": run.exit_code,
        "stdout": _tail(run.stdout_head, run.stdout_tail),
        "stderr": _tail(run.stderr_head, run.stderr_tail),
    }
    if run.earlier:
        # Disturbed runs that this one replaces: for information, on no clock. Their
        # cause is another's work, and a script must not pay for it.
        fields["disturbed_s"] = sum(
            one.delta_s for one in run.earlier if one.status != "sandbox_error"
        )
    if run.status != "ok":
        return fields | {"status": "failed", "reason": run.error or run.status}, None
    if run.submission_bytes is None:
        reason = f"the submission is {run.submission.status}"
        if run.submission.reason:
            reason += f": {run.submission.reason}"
        return fields | {"status": "invalid", "reason": reason}, None
    try:
        verdict = grade(run)
    except Exception as error:  # a grader's own failure is never a score
        return infrastructure(f"grader: {type(error).__name__}: {error}"), None
    fields |= {
        "submission_sha256": run.submission.sha256,
        "verdict": verdict.status,
        **verdict.facts,
    }
    if not verdict.valid:
        status = MISSED if verdict.status == MISSED else "invalid"
        return fields | {"status": status, "reason": verdict.reason}, None
    score = None if verdict.score is None else float(verdict.score)
    if score is None or not math.isfinite(score):
        return fields | {"status": "invalid", "reason": f"the score is {score}"}, None
    fields |= {"medal": verdict.medal, "above_median": bool(verdict.above_median)}
    return fields | {"status": "valid", "reason": None}, score


def _tail(head: str, tail: str) -> str:
    text = tail or head
    return text[-_TEXT:]


def finish(
    identity: dict[str, Any],
    fields: dict[str, Any],
    score: float | None,
    *,
    scoring: Scoring,
    generation_s: float,
    grading_s: float,
    best: float | None,
) -> dict[str, Any]:
    """The complete record of an attempt.

    Args:
        identity: run_id, step, chain, parent, script and prompt.
        fields: from ``outcome``, ``without_script`` or ``infrastructure``.
        score: metric units; None without one.
        scoring: reward rule.
        generation_s: seconds of generation charged to this attempt.
        grading_s: seconds of grading.
        best: best value of earlier steps, for the paper's bonus.
    """
    if scoring.rule.script_clock == "cpu" and fields.get("cpu_s", 0.0) is None:
        fields, score = infrastructure(_NO_CPU_TIME), None
    reward, value = scoring.reward(score, best, fields)
    if abs(value) > _MOST:
        reason = f"a score of {score:g} is beyond {_MOST:g}: no reward"
        fields = fields | {"status": "invalid", "reason": reason}
        fields = {k: v for k, v in fields.items() if k not in _OF_A_SCORE}
        score = None
        reward, value = scoring.reward(score, best, fields)
    record = identity | fields
    record |= {"valid": fields["status"] == "valid", "score": score}
    record |= {"generation_s": float(generation_s), "grading_s": float(grading_s)}
    if fields["status"] == INFRASTRUCTURE:
        return record | {"reward": None, "value": None, "delta_s": None}
    seconds = seconds_of(scoring.rule, record)
    return record | {"reward": reward, "value": value, "delta_s": seconds}
