"""What the loop is given: a policy, a sandbox, a grader, prompts and an answer form."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from experiments.answers import AnswerForm, whole_script
from experiments.policies.base import Policy
from rpg_tasks.prompts import Attempt
from sandbox_exec.protocol import RunRecord

if TYPE_CHECKING:  # scikit-learn is slow to import
    from rpg_tasks.grading import Grade


class Hooks(NamedTuple):
    """What the loop is given.

    Attributes:
        policy: writes answers and learns.
        execute: (run_id, script) -> future of the sandbox's record, at once.
        grade: the record of a run that left a submission -> its grade.
        describe: the previous attempt, or None -> prompt; None for an attempt that no
            prompt can show: the chain then gets the base prompt and has no parent.
        form: how a script is read from an answer and its parent.
    """

    policy: Policy
    execute: Callable[[str, bytes], Future[RunRecord]]
    grade: Callable[[RunRecord], Grade]
    describe: Callable[[Attempt | None], str | None]
    form: AnswerForm = whole_script.FORM
