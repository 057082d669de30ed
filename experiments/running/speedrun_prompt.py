"""What a policy that writes code is told in a speedrun; its first parent."""

from __future__ import annotations

import functools
from collections.abc import Callable

from experiments.answers import AnswerForm
from experiments.answers.edits import EditError
from experiments.config.crossing import Crossing
from experiments.menus import part_edits
from experiments.menus.recipe import first_script
from experiments.menus.task_menu import menu_of
from rpg_tasks.prompts import Attempt
from rpg_tasks.speedrun.record import Speedrun

_TASK = """\
{summary}
The script below trains a model and leaves it in model.npz. It is called with
--data=input --out=. --seed=N; input/train.bin holds the text. Afterwards the loss on
other text is computed from model.npz. Reach a loss of {target:g} nats a token, for any
seed, in as few CPU seconds as you can: one core, imports included.
{contract}"""
_CONTRACT = {
    "declared": "Only weights of the architecture that its config declares are read.",
    "callable": "load(path) and logits(model, tokens) of the script are called.",
}


def baseline_of(speedrun: Speedrun) -> str:
    """The script that everything begins with."""
    menu = menu_of(speedrun.short)
    return menu.script(first_script(next(iter(menu.forms.values()))))


def baseline_form(form: AnswerForm, speedrun: Speedrun) -> AnswerForm:
    """The form, with the baseline as the parent where there is no other.

    A menu's policy writes all parts instead. An answer that leaves the program as it
    is changes nothing and is an error, whatever its form.
    """
    if form.name == part_edits.NAME:
        return form
    baseline = baseline_of(speedrun)

    def read(answer: str, parent: str | None) -> str:
        before = parent or baseline
        script = form.read(answer, before)
        if script.strip() == before.strip():
            raise EditError("no-op", "the script would stay as it is: change something")
        return script

    return form._replace(read=read)


def describer(
    speedrun: Speedrun, crossing: Crossing, how: str
) -> Callable[[Attempt | None], str | None]:
    """The loop's ``describe`` hook for a policy that writes code."""
    first = Attempt(baseline_of(speedrun), speedrun.baseline_s, speedrun.baseline_s)
    return functools.partial(_describe, speedrun, crossing, how, first)


def _describe(
    speedrun: Speedrun,
    crossing: Crossing,
    how: str,
    first: Attempt,
    previous: Attempt | None,
) -> str:
    shown = previous or first
    task = _TASK.format(
        summary=speedrun.summary,
        target=crossing.target,
        contract=_CONTRACT[crossing.contract],
    )
    lines = [task, "", "```python", shown.script.rstrip("\n"), "```"]
    if shown.score is not None:
        lines.append(f"It reached the target in {shown.seconds:.2f} s.")
    if shown.note:
        lines.append(shown.note)
    lines.append(how or "Answer with the whole script in one ```python block.")
    return "\n".join(lines)
