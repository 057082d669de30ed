"""Examples for the embedded policy: (prompt, completion) drawn from menus.

    base     the base prompt      -> a plan, a script
    improve  the improve prompt   -> a plan, the previous script with a change or two
             (sometimes repaired, sometimes written anew)

Prompts are those of ``rpg_tasks.prompts``. Score, seconds and printed figures
of the previous script are *drawn at random*, whatever the script: a corpus with
measured results would teach which choices are good, and finding that out is the
learner's task.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from experiments.menus.failures import Failure, fail
from experiments.menus.menu import Pick, Recipe, draw_option, recipes
from rpg_tasks.prepare import TaskData
from rpg_tasks.prompts import Attempt, StatedLimits, prompt
from rpg_tasks.registry import Task, get_task

# Shares of the corpus, chosen for variety and not tuned to any score.
FAILING = 0.05  # completions that fail
FAILED_BEFORE = 0.1  # previous scripts that failed
REWRITE = 0.12  # improve pairs that start anew
TWO_CHANGES = 0.3  # local edits that touch two slots
WARNINGS = (
    "  warnings.warn(",
    "ConvergenceWarning: lbfgs failed to converge after 100 iteration(s)",
    "UserWarning: X does not have valid feature names",
    "UserWarning: The least populated class in y has only 1 members",
)


@dataclasses.dataclass(frozen=True)
class Example:
    """One pair of the corpus.

    Attributes:
        task: short name.
        prompt_kind: "base" or "improve".
        prompt: as the policy will be asked.
        completion: plan and one fenced block.
        script: what is in the block.
        choices: slot -> pick; with ``form``, the recipe's name.
        previous: the script in an improve prompt; None in a base prompt.
        edit: "none", "value", "option", "repair" or "rewrite".
        failure: kind of failure of ``script``; None for a sound one.
    """

    task: str
    prompt_kind: str
    prompt: str
    completion: str
    script: str
    choices: Mapping[str, Pick]
    form: str
    previous: str | None = None
    edit: str = "none"
    failure: str | None = None


@dataclasses.dataclass(frozen=True)
class Draft:
    """A recipe, its choices and the script they give."""

    recipe: Recipe
    choices: Mapping[str, Pick]

    @property
    def script(self) -> str:
        """The source."""
        return self.recipe.render(self.choices)

    @property
    def plan(self) -> str:
        """One line that names the choices."""
        words = [self.recipe.words(slot, pick) for slot, pick in self.choices.items()]
        return f"Plan: {'; '.join(w for w in words if w) or 'the plain way'}."


def draw(task: Task | str, rng: np.random.Generator) -> Draft:
    """A script for a task, every choice drawn anew."""
    forms = recipes(get_task(task).short)
    weights = np.array([form.weight for form in forms])
    recipe = forms[int(rng.choice(len(forms), p=weights / weights.sum()))]
    return Draft(recipe, recipe.draw(rng))


def edit(draft: Draft, rng: np.random.Generator) -> tuple[Draft, str, str]:
    """The same script with one or two slots changed: (draft, plan, kind).

    A value of an option is changed (one line, mostly) or an option replaced by another.
    """
    choices = dict(draft.choices)
    changes = 2 if rng.random() < TWO_CHANGES else 1
    kinds, words = set(), []
    # Slots with one fixed option and one with nothing to choose cannot change.
    open_slots = [
        slot
        for slot, options in draft.recipe.slots.items()
        if len(options) > 1 or any(len(v) > 1 for v in options[0].domains.values())
    ]
    for slot in rng.permutation(open_slots)[:changes]:
        slot, options = str(slot), draft.recipe.slots[str(slot)]
        old = choices[slot]
        option = draft.recipe.option(slot, old)
        free = [k for k, v in option.domains.items() if len(set(v)) > 1]
        if free and (len(options) == 1 or rng.random() < 0.5):
            name = free[int(rng.integers(len(free)))]
            values = dict(old.values)
            others = [v for v in option.domains[name] if v != values[name]]
            values[name] = others[int(rng.integers(len(others)))]
            choices[slot] = Pick(old.option, tuple(values.items()))
            what = draft.recipe.words(slot, old) or slot
            words.append(f"{what}: {name} {values[name]}")
            kinds.add("value")
        else:
            others = [o for o in options if o.name != old.option]
            if not others:
                continue
            choices[slot] = draw_option(rng, others)
            was, now = (draft.recipe.words(slot, p) for p in (old, choices[slot]))
            words.append(f"{was or slot} to {now or 'the plain way'}")
            kinds.add("option")
    changed = Draft(draft.recipe, choices)
    kind = "option" if "option" in kinds else "value"
    return changed, f"Plan: change {'; '.join(words)}.", kind


def completion(plan: str, script: str) -> str:
    """What the policy writes: a plan, then one fenced Python block."""
    return f"{plan}\n\n```python\n{script}```"


def generate(
    task: Task | str,
    data: TaskData,
    rng: np.random.Generator,
    *,
    kind: str | None = None,
    limits: StatedLimits | None = None,
) -> Example:
    """One example.

    Args:
        task: task or its name.
        data: prepared data; the prompt lists the files of ``data.public``.
        rng: all randomness of the example.
        kind: "base" or "improve"; None draws one of the two.
        limits: the sandbox's limits, as the loop puts them into the prompt.

    Raises:
        TaskError: the data cannot be read.
        ValueError: an unknown kind.
    """
    task = get_task(task)
    kind = kind or ("base" if rng.random() < 0.5 else "improve")
    if kind not in ("base", "improve"):
        raise ValueError(f"kind must be 'base' or 'improve', got {kind!r}")
    draft = draw(task, rng)
    plan, how, previous, attempt = draft.plan, "none", None, None
    if kind == "improve":
        before, failed = draft, None
        if rng.random() < FAILED_BEFORE:
            failed = fail(before.script, rng)
        attempt = _attempt(task, before.script, failed, rng)
        previous = attempt.script
        draft, plan, how = _improved(task, before, failed, rng)
    script, failure = draft.script, None
    if rng.random() < FAILING:
        broken = fail(script, rng)
        script, failure = broken.script, broken.kind
    return Example(
        task=task.short,
        prompt_kind=kind,
        prompt=prompt(task, data.public, attempt, style="compact", limits=limits),
        completion=completion(plan, script),
        script=script,
        choices=draft.choices,
        form=draft.recipe.name,
        previous=previous,
        edit=how,
        failure=failure,
    )


def _improved(
    task: Task, before: Draft, failed: Failure | None, rng: np.random.Generator
) -> tuple[Draft, str, str]:
    if rng.random() < REWRITE:
        anew = draw(task, rng)
        return anew, anew.plan.replace("Plan:", "Plan: write it anew:", 1), "rewrite"
    if failed is not None and rng.random() < 0.5:
        return before, f"Plan: repair the {failed.kind}.", "repair"
    changed, plan, how = edit(before, rng)
    if failed is not None:
        plan = plan.replace("change", f"repair the {failed.kind} and change", 1)
        how = "repair"
    return changed, plan, how


def _attempt(
    task: Task, script: str, failed: Failure | None, rng: np.random.Generator
) -> Attempt:
    """The previous attempt, with results drawn regardless of the script."""
    seconds = float(np.exp(rng.uniform(math.log(0.4), math.log(60))))
    if failed is not None:
        output = failed.output
        return Attempt(failed.script, seconds, failure=failed.reason, output=output)
    score = _random_score(task, rng)
    printed = ""
    if "print(" in script:
        printed = f"cv {round(float(rng.uniform(0, 1)), 4)}"
        if 'print("holdout"' in script:
            printed = printed.replace("cv", "holdout")
    if rng.random() < 0.15:
        # Libraries warn on standard error, which a prompt shows as well.
        warning = WARNINGS[int(rng.integers(len(WARNINGS)))]
        printed = f"{printed}\n{warning}".strip()
    return Attempt(script, seconds, score=score, output=printed)


def _random_score(task: Task, rng: np.random.Generator) -> float:
    """A score that the metric could give; it says nothing about the script."""
    if task.higher_is_better:
        return float(rng.uniform(0.4, 1.0))
    # From a fortieth to eight times the competition's median, on a logarithmic scale.
    median = 1.0 if task.medals is None else task.medals.median
    scale = max(abs(median), 1e-3)
    return float(scale * np.exp(rng.uniform(math.log(0.025), math.log(8))))
