"""What the loop is given: a policy, a sandbox, a grader, prompts and an answer form."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from experiments.policies.base import Policy
from rpg_tasks.prompts import Attempt, extract_script
from sandbox_exec.protocol import RunRecord

if TYPE_CHECKING:  # scikit-learn is slow to import
    from rpg_tasks.grading import Grade


def _whole_script(answer: str, parent: str | None) -> str:
    """The script that an answer holds, whatever its parent was."""
    return extract_script(answer)


class Hooks(NamedTuple):
    """What the loop is given.

    Attributes:
        policy: writes answers and learns.
        execute: (run_id, script) -> future of the sandbox's record, at once.
        grade: the record of a run that left a submission -> its grade.
        describe: the previous attempt, or None -> prompt; None for an attempt that no
            prompt can show: the chain then gets the base prompt and has no parent.
        read: (answer, the parent's script or None) -> script; raises ``NoScript``.
    """

    policy: Policy
    execute: Callable[[str, bytes], Future[RunRecord]]
    grade: Callable[[RunRecord], Grade]
    describe: Callable[[Attempt | None], str | None]
    read: Callable[[str, str | None], str] = _whole_script
