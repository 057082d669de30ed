"""Examples for the embedded policy: (prompt, completion) drawn from menus.

    base     the base prompt      -> the lines of every part of a script
    improve  the improve prompt   -> the lines of the parts that change: mostly one or
             two; sometimes those of another script altogether

Prompts are those of ``experiments.menus.prompt``. Score, seconds and place of the
script shown are *drawn at random*, whatever the script: a corpus with measured results
would teach which choices are good, and finding that out is the learner's task.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.answers import NoScript
from experiments.menus.edits import draw_edit
from experiments.menus.menu import Menu
from experiments.menus.part_edits import read
from experiments.menus.prompt import menu_prompt, shown_place
from experiments.menus.recipe import ChosenScript
from experiments.menus.task_menu import draw, goal_of, menu_of
from rpg_tasks.goal import Goal
from rpg_tasks.prompts import Attempt
from rpg_tasks.speedrun.record import Speedrun

# Shares of the corpus, chosen for variety and not tuned to any score.
NOTED = 0.03  # improve prompts that say why the last answer was not applied
MOST = 128  # scripts that a parent's place is among, at most


@dataclasses.dataclass(frozen=True)
class Example:
    """One pair of the corpus.

    Attributes:
        task: short name.
        kind: "base" or "improve".
        prompt: as the policy will be asked.
        completion: lines of parts.
        script: what the completion means.
        previous: the script that an improve prompt shows; None in a base prompt.
    """

    task: str
    kind: str
    prompt: str
    completion: str
    script: str
    previous: str | None = None


def generate(
    task: Goal | str, rng: np.random.Generator, *, kind: str | None = None
) -> Example:
    """One example.

    Args:
        task: task or speedrun, or its name.
        rng: all randomness of the example.
        kind: "base" or "improve"; None draws one of the two.

    Raises:
        NoMenu: the task has no menu.
        ValueError: an unknown kind.
    """
    task = goal_of(task)
    menu = _menu(task.short)
    kind = kind or ("base" if rng.random() < 0.5 else "improve")
    if kind not in ("base", "improve"):
        raise ValueError(f"kind must be 'base' or 'improve', got {kind!r}")
    before = draw(task, rng)
    if kind == "base":
        text = menu.text(before)
        return Example(
            task.short, kind, menu_prompt(task, menu), text, menu.script(before)
        )
    script = menu.script(before)
    attempt = _attempt(task, script, menu, rng)
    prompt = menu_prompt(task, menu, attempt)
    answer = _edit(menu, before, shown_place(prompt), rng)
    return Example(
        task=task.short,
        kind=kind,
        prompt=prompt,
        completion=answer,
        script=read(menu, answer, script),
        previous=script,
    )


def corpus(tasks: Sequence[str], *, per_task: int, seed: int = 0) -> Iterator[Example]:
    """``per_task`` examples of every task, base and improve by turns.

    Equal seeds give equal examples; a task's examples do not depend on which other
    tasks are asked for.
    """
    for task in tasks:
        rng = np.random.default_rng([seed, *map(ord, task)])
        for k in range(per_task):
            yield generate(task, rng, kind="base" if k % 2 == 0 else "improve")


#: A corpus draws thousands of scripts of a menu.
_menu = functools.cache(menu_of)


def _edit(
    menu: Menu, before: ChosenScript, place: float, rng: np.random.Generator
) -> str:
    """The lines of an edit that changes something."""
    while True:
        after = draw_edit(tuple(menu.forms.values()), before, rng, place=place)
        if lines := menu.changes(before, after):
            return lines


def _attempt(task: Goal, script: str, menu: Menu, rng: np.random.Generator) -> Attempt:
    """The previous attempt, with results drawn regardless of the script."""
    number = round(math.exp(rng.uniform(0.0, math.log(MOST))))
    place = 1 + int(rng.integers(number))
    note = ""
    if rng.random() < NOTED:
        note = f"The last answer was not applied ({_refusal(menu, script, rng)})."
    seconds = math.exp(rng.uniform(math.log(0.2), math.log(60)))
    # A speedrun's score is the seconds to its target.
    score = seconds if isinstance(task, Speedrun) else _random_score(task, rng)
    return Attempt(
        script,
        seconds=seconds,
        score=score,
        note=note,
        rank=(place, number),
    )


def _refusal(menu: Menu, script: str, rng: np.random.Generator) -> str:
    """Why an answer could not be applied: a real message."""
    lines = menu.text(menu.recover(script)).split("\n")
    line = lines[1 + int(rng.integers(len(lines) - 1))] if len(lines) > 1 else ""
    answer = f"{line}\n{line}" if rng.random() < 0.3 else line
    try:
        read(menu, answer, script)
    except NoScript as error:
        return str(error)
    raise AssertionError(f"an answer that changes nothing was applied: {answer!r}")


def _random_score(task: Goal, rng: np.random.Generator) -> float:
    """A score that the metric could give; it says nothing about the script."""
    if task.higher_is_better:
        return float(rng.uniform(0.2, 1.0))
    # From a fortieth to eight times the competition's median, on a logarithmic scale.
    median = 1.0 if task.medals is None else task.medals.median
    scale = max(abs(median), 1e-3)
    return float(scale * np.exp(rng.uniform(math.log(0.025), math.log(8))))
