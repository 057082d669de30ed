"""Answers that name the changed parts of a script of the menu, and nothing else.

    rows: fraction frac=0.8
    model: logistic C=1.0 steps=300

Every other part stays as it is in the parent, so a child inherits by construction and
unchanged parts cost no tokens. An answer that begins with ``form:`` names every part
and writes the script anew; without a parent that is the only kind.
"""

from __future__ import annotations

from experiments.answers.base import AnswerForm, NoScript, register_form
from experiments.answers.edits import EditError
from experiments.menus.menu import FORM as FORM_LINE
from experiments.menus.menu import Menu, NotOfTheMenu
from experiments.menus.recipe import ChosenScript
from experiments.menus.task_menu import menu_of
from rpg_tasks.goal import Goal

NAME = "part-edits"


def read(menu: Menu, answer: str, parent: str | None) -> str:
    """The script of an answer.

    Args:
        menu: of the task.
        answer: lines of changed parts, or of all parts.
        parent: the script that the prompt showed; None reads all parts.

    Raises:
        NoScript: without a parent, lines that are not a whole script of the menu.
        EditError: ``malformed`` (no lines, a part twice), ``missing`` (a part, option
            or value that the menu or the parent does not have) or ``no-op``; nothing of
            the answer is applied.
    """
    text = answer.strip()
    try:
        if parent is None or text.startswith(f"{FORM_LINE}:"):
            chosen = menu.parse(text)
        else:
            chosen = apply_parts(menu, menu.recover(parent), text)
    except NotOfTheMenu as error:
        if parent is None:
            raise NoScript(str(error)) from None
        raise EditError("missing", str(error)) from None
    script = menu.script(chosen)
    if script == parent:
        raise EditError("no-op", "the script would stay as it is: change something")
    return script


def apply_parts(menu: Menu, parent: ChosenScript, text: str) -> ChosenScript:
    """The parent with the parts of these lines in place of its own.

    Args:
        menu: of the task.
        parent: a script's choices.
        text: a line per changed part, in any order.

    Raises:
        EditError: there is no line, or two for one part.
        NotOfTheMenu: a line is not of the menu, or not of the parent's form.
    """
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    if not lines:
        raise EditError("malformed", "the answer names no part")
    parts = menu.parts[parent.recipe.name]
    choices = dict(parent.choices)
    seen = set()
    for line in lines:
        slot, pick = menu.line(parent.recipe.name, line.strip())
        if slot in seen:
            raise EditError("malformed", f"the part {slot!r} is named twice")
        seen.add(slot)
        choices[slot] = pick
    assert seen <= set(parts)
    return ChosenScript(parent.recipe, choices)


def form_of(task: Goal) -> AnswerForm:
    """The form, reading answers with a task's menu.

    Raises:
        MenuError: the task has no menu, or one that cannot be used.
    """
    return bound(menu_of(task.short))


def bound(menu: Menu) -> AnswerForm:
    """The form for a menu."""
    return AnswerForm(NAME, lambda answer, parent: read(menu, answer, parent), HOW)


def _without_task(answer: str, parent: str | None) -> str:
    raise TypeError(f"the form {NAME} reads with a task's menu: use of_task(task).read")


HOW = "Answer with the lines of the parts that you change, and no others."
FORM = register_form(AnswerForm(NAME, _without_task, HOW, of_task=form_of))
