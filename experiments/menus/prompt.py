"""Prompts that ask for choices from a menu: a few short lines, for a small context."""

from __future__ import annotations

from collections.abc import Callable

from experiments.menus.menu import Menu, NotOfTheMenu
from rpg_tasks.prompts import Attempt
from rpg_tasks.registry import Task, TaskError


def menu_prompt(task: Task, menu: Menu, attempt: Attempt | None = None) -> str:
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
    parts = ", ".join(next(iter(menu.parts.values())))
    lines = [
        f"Task {task.short}: {task.summary}",
        f"Score: {task.metric_text}, {better} is better. Run time counts.",
        f"Choose the parts of a script: {parts}.",
    ]
    if attempt is not None:
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


def describer(
    task: Task, menu: Menu, count: Callable[[str], int], max_tokens: int
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
