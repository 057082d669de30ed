"""The loop's hooks for a prepared task: sandbox pool, grader and prompts."""

import functools
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from experiments.answers import AnswerForm, whole_script
from experiments.config.errors import LoopError
from experiments.loop.hooks import Hooks
from experiments.policies.base import Policy
from rpg_tasks.grading import Grade, Grader
from rpg_tasks.prepare import TaskData
from rpg_tasks.prompts import Attempt, StatedLimits, fit
from rpg_tasks.registry import Task, TaskError
from sandbox_exec.limits import Limits
from sandbox_exec.protocol import RunRecord, ScriptJob, ScriptPool

_MIB = 1 << 20

# A script that waits uses no CPU seconds, so the wall stops it in the end.
_WALL_PER_CPU = 5.0


def script_limits(
    data: TaskData,
    grader: Grader,
    *,
    limit_s: float | None = None,
    script_clock: str = "wall",
) -> Limits:
    """The sandbox's limits of a task: its record's, and room for its submissions.

    Args:
        data: the prepared task.
        grader: says how large a submission may be.
        limit_s: seconds a script may take, on its clock; None: the task's.
        script_clock: ``wall``, or ``cpu``: then other work on the machine, which
            makes a script wait, cannot push it over its limit.
    """
    task = data.task
    limit = limit_s or task.wall_limit_s
    cpu = script_clock == "cpu"
    return Limits(
        wall_s=limit * _WALL_PER_CPU if cpu else limit,
        cpu_s=limit if cpu else None,
        memory_mb=task.memory_mb,
        submission_mb=max(-(-grader.limit_bytes // _MIB), Limits().submission_mb),
    )


def make_hooks(
    policy: Policy,
    pool: ScriptPool | None,
    data: TaskData,
    grader: Grader,
    limits: Limits,
    *,
    split: str = "validation",
    style: str = "full",
    count_tokens: Callable[[str], int] | None = None,
    max_prompt_tokens: int = 2560,
    cores: int = 1,
    stated: StatedLimits | None = None,
    form: AnswerForm = whole_script.FORM,
) -> Hooks:
    """Hooks that run scripts in a pool and grade what they leave.

    Args:
        policy: writes answers and learns. pool: runs scripts; None at a replay.
        data: the prepared task.
        grader: of the answers of ``split``.
        limits: of one script; the prompt states the same unless ``stated`` is given.
        split: ``validation``, or ``test`` (the paper's).
        style: of the prompts.
        count_tokens: of a prompt with its template; None: four characters a token.
        max_prompt_tokens: the limit; detail is dropped until a prompt fits.
        cores: per slot.
        stated: what prompts say about limits.
        form: how answers are written and read.
    """
    inputs = data.public if split == "validation" else data.test_public
    limit_s = limits.cpu_s or limits.wall_s
    describe = functools.partial(
        _describe,
        data.task,
        inputs,
        style=style,
        shown=stated or StatedLimits(limit_s, limits.memory_mb, cores),
        count=count_tokens or (lambda text: -(-len(text) // 4)),
        max_tokens=max_prompt_tokens,
        how=form.how,
    )

    def execute(run_id: str, script: bytes) -> "Future[RunRecord]":
        if pool is None:
            raise LoopError("a replay runs no script")
        return pool.submit(
            ScriptJob(
                script=script,
                inputs=inputs,
                task_id=data.task.short,
                limits=limits,
                run_id=run_id,
            )
        )

    def grade(run: RunRecord) -> Grade:
        return grader.grade_bytes(run.submission_bytes or b"")

    return Hooks(policy, execute, grade, describe, form)


def _describe(
    task: Task,
    inputs: Path,
    previous: Attempt | None,
    *,
    style: str,
    shown: StatedLimits,
    count: Callable[[str], int],
    max_tokens: int,
    how: str,
) -> str | None:
    """The prompt of a task, and of the attempt to improve if there is one."""
    try:
        return fit(count, max_tokens, task, inputs, previous, style=style, limits=shown)
    except TaskError:
        if previous is None:
            raise
        return None  # a script too long to be shown is not improved
