"""What a form of answer is, and the names that forms are known by."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rpg_tasks.goal import Goal
from rpg_tasks.prompts import NoScript

__all__ = ["FORMS", "AnswerForm", "NoScript", "get_form", "register_form"]


class AnswerForm(NamedTuple):
    """One way to write a script into an answer: whole, as an edit of its parent, ...

    Attributes:
        name: what the form is chosen by, in lower case with hyphens.
        read: (answer, parent) -> script. ``parent`` is the script that the prompt
            showed; None for a prompt that showed none. It raises ``NoScript`` with one
            short sentence for an answer that it cannot read, and nothing else: an
            answer may hold any text. Equal arguments give equal scripts, as a replay
            reads the recorded answers again.
        how: how to answer a prompt that shows a parent, as its last words; empty for
            the prompt's own words, which ask for a whole script.
        of_task: for a form that reads with something of the task: task -> the form for
            it, whose ``read`` is used; it raises ``ValueError`` for a task that it does
            not go with. None: ``read`` is the same for every task.
    """

    name: str
    read: Callable[[str, str | None], str]
    how: str = ""
    of_task: Callable[[Goal], AnswerForm] | None = None

    def bind(self, task: Goal) -> AnswerForm:
        """The form as it reads answers to a task's prompts.

        Raises:
            ValueError: the form does not go with this task.
        """
        return self if self.of_task is None else self.of_task(task)


#: Forms by name; ``register_form`` adds yours.
FORMS: dict[str, AnswerForm] = {}


def register_form(form: AnswerForm) -> AnswerForm:
    """Let ``get_form`` find a form.

    Raises:
        ValueError: another form has that name.
    """
    if FORMS.get(form.name, form) != form:
        raise ValueError(
            f"there is an answer form {form.name!r} already: choose another name"
        )
    FORMS[form.name] = form
    return form


def get_form(name: str) -> AnswerForm:
    """The form of that name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in FORMS:
        raise ValueError(
            f"there is no answer form {name!r}: choose from {', '.join(FORMS)}"
        )
    return FORMS[name]
