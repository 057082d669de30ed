"""Prompts that ask for choices from a menu: a few short lines, for a small context."""

from __future__ import annotations

import re
from collections.abc import Callable

from experiments.menus.menu import FORM, Menu, NotOfTheMenu
from experiments.menus.part_edits import HOW
from rpg_tasks.goal import Goal
from rpg_tasks.prompts import Attempt
from rpg_tasks.registry import TaskError

_SHOWN = re.compile(rf"^{FORM}: (\S+)$", re.MULTILINE)
_PLACE = re.compile(r"^Score .*, place (\d+) of (\d+)\.$", re.MULTILINE)
_RESULT = re.compile(r"^(?:Score|Failed) ", re.MULTILINE)


def menu_prompt(task: Goal, menu: Menu, attempt: Attempt | None = None) -> str:
    """The base prompt, or with an attempt the improve prompt.

    Options are not listed: the grammar holds them, and a small model that reads a list
    copies its first entries.

    Args:
        task: the task.
        menu: its parts and options.
        attempt: a script of this menu and what became of it.

    Raises:
        NotOfTheMenu: the attempt's script was not rendered from this menu.
    """
    better = "higher" if task.higher_is_better else "lower"
    lines = [
        f"Task {task.short}: {task.summary}",
        f"{task.metric_text}, {better} is better. Seconds count.",
    ]
    if attempt is None:
        return "\n".join([*lines, "Choose every part of a script."])
    lines += [menu.text(menu.recover(attempt.script)), _result(attempt)]
    if attempt.note:
        lines.append(attempt.note)
    return "\n".join([*lines, HOW])


def _result(attempt: Attempt) -> str:
    """What became of the script shown, in three figures at most."""
    if attempt.score is None:
        return f"Failed after {attempt.seconds:.1f} s."
    line = f"Score {attempt.score:.3g} in {attempt.seconds:.2g} s"
    if attempt.rank is not None:
        place, number = attempt.rank
        line += f", place {place} of {number}"
    return f"{line}."


def shown_parts(prompt: str) -> str | None:
    """The lines of the script that a prompt shows; None under the base prompt."""
    begin = _SHOWN.search(prompt)
    if begin is None:
        return None
    end = _RESULT.search(prompt, begin.end())
    return prompt[begin.start() : end.start() if end else None].strip()


def shown_form(prompt: str) -> str | None:
    """The form of script that a prompt shows; None under the base prompt."""
    begin = _SHOWN.search(prompt)
    return None if begin is None else begin[1]


def shown_place(prompt: str) -> float:
    """Place of the script shown among others: 0 the best, 1 the worst; .5 unknown."""
    found = _PLACE.search(prompt)
    if found is None or int(found[2]) < 2:
        return 0.5
    return (int(found[1]) - 1) / (int(found[2]) - 1)


def describer(
    task: Goal, menu: Menu, count: Callable[[str], int], max_tokens: int
) -> Callable[[Attempt | None], str | None]:
    """The loop's ``describe`` hook for a menu.

    Args:
        task: the task.
        menu: of the task.
        count: tokens of a prompt, chat template included.
        max_tokens: the limit.
    """

    def describe(previous: Attempt | None) -> str | None:
        try:
            text = menu_prompt(task, menu, previous)
        except NotOfTheMenu:
            return None  # a script of other menus is not improved
        if (length := count(text)) > max_tokens:
            if previous is not None:
                return None  # nor are choices too long to be shown
            raise TaskError(
                f"{task.short}: a menu prompt has {length} tokens, the limit is "
                f"{max_tokens}: raise --max-prompt-tokens"
            )
        return text

    return describe
