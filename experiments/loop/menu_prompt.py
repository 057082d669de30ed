"""Prompts that ask for choices from a menu: a few short lines, for a small context."""

from __future__ import annotations

from collections.abc import Callable

from experiments.loop.menu_text import FORM, Menu, NotOfTheMenu
from experiments.tasks.prompts import Attempt
from experiments.tasks.registry import Task, TaskError


def menu_prompt(
    task: Task, menu: Menu, attempt: Attempt | None = None, *, listing: bool = True
) -> str:
    """The base prompt, or with an attempt the improve prompt.

    Args:
        task: the task.
        menu: its parts and options.
        attempt: a script of this menu and what became of it.
        listing: name the options of each part.

    Raises:
        NotOfTheMenu: the attempt's script was not rendered from this menu.
    """
    better = "higher" if task.higher_is_better else "lower"
    lines = [
        f"Task {task.short}: {task.summary}",
        f"Score: {task.metric_text}, {better} is better. Run time counts.",
        "Choose one option for each part of the script.",
    ]
    if listing:
        lines += _listing(menu)
    if attempt is None:
        lines.append("Write your choice for each part.")
    else:
        result = (
            f"it failed after {attempt.seconds:.1f} s"
            if attempt.score is None
            else f"score {attempt.score:.5g} in {attempt.seconds:.1f} s"
        )
        lines += [
            f"Previous choices: {result}.",
            menu.text(menu.recover(attempt.script)),
            f"Choose better: a {better} score in less time.",
        ]
    return "\n".join(lines)


def _listing(menu: Menu) -> list[str]:
    """Each form's parts with the names of their options."""
    lines = []
    for form, parts in menu.parts.items():
        lines.append(f"{FORM}: {form}")
        lines += [f"{slot}: {', '.join(choices)}" for slot, choices in parts.items()]
    return lines


def describer(
    task: Task, menu: Menu, count: Callable[[str], int], max_tokens: int
) -> Callable[[Attempt | None], str | None]:
    """The loop's ``describe`` hook: the richest prompt of at most ``max_tokens``.

    Args:
        task: the task.
        menu: of the task.
        count: tokens of a prompt, chat template included.
        max_tokens: the limit.
    """

    def describe(previous: Attempt | None) -> str | None:
        counts = []
        for listing in (True, False):
            try:
                text = menu_prompt(task, menu, previous, listing=listing)
            except NotOfTheMenu:
                return None  # a script of other menus is not improved
            counts.append(count(text))
            if counts[-1] <= max_tokens:
                return text
        raise TaskError(
            f"{task.short}: a menu prompt has {counts[-1]} tokens at least, the limit "
            f"is {max_tokens}: raise --max-prompt-tokens"
        )

    return describe
