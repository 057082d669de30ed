"""The whole script in one fenced Python block, whatever its parent was."""

from __future__ import annotations

from experiments.answers.base import AnswerForm
from rpg_tasks.prompts import extract_script


def read(answer: str, parent: str | None) -> str:
    """The script of an answer's only Python block.

    Args:
        answer: what the policy wrote.
        parent: not used: the answer holds everything.

    Raises:
        NoScript: no block, several, an unfinished or an empty one.
    """
    return extract_script(answer)


FORM = AnswerForm("whole-script", read)
