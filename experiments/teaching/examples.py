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
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from experiments.menus.recipe import ChosenScript, Pick, answer_text
from experiments.menus.task_menu import draw
from experiments.teaching.edits import edit
from experiments.teaching.failures import Failure, fail
from rpg_tasks.prepare import TaskData
from rpg_tasks.prompts import Attempt, StatedLimits, prompt
from rpg_tasks.registry import Task, get_task

# Shares of the corpus, chosen for variety and not tuned to any score.
FAILING = 0.05  # completions that fail
FAILED_BEFORE = 0.1  # previous scripts that failed
REWRITE = 0.12  # improve pairs that start anew
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
        NoMenu: the task has no menu.
        ValueError: an unknown kind.
    """
    task = get_task(task)
    kind = kind or ("base" if rng.random() < 0.5 else "improve")
    if kind not in ("base", "improve"):
        raise ValueError(f"kind must be 'base' or 'improve', got {kind!r}")
    chosen = draw(task, rng)
    plan, how, previous, attempt = chosen.plan, "none", None, None
    if kind == "improve":
        before, failed = chosen, None
        if rng.random() < FAILED_BEFORE:
            failed = fail(before.script, rng)
        attempt = _attempt(task, before.script, failed, rng)
        previous = attempt.script
        chosen, plan, how = _improved(task, before, failed, rng)
    script, failure = chosen.script, None
    if rng.random() < FAILING:
        broken = fail(script, rng)
        script, failure = broken.script, broken.kind
    return Example(
        task=task.short,
        prompt_kind=kind,
        prompt=prompt(task, data.public, attempt, style="compact", limits=limits),
        completion=answer_text(plan, script),
        script=script,
        choices=chosen.choices,
        form=chosen.recipe.name,
        previous=previous,
        edit=how,
        failure=failure,
    )


def corpus(
    data: Iterable[TaskData], *, per_task: int, seed: int = 0
) -> Iterator[Example]:
    """``per_task`` examples of every task, base and improve by turns.

    Equal seeds and data give equal examples; a task's examples do not depend on which
    other tasks are asked for.
    """
    for source in data:
        name = [ord(c) for c in source.task.short]
        rng = np.random.default_rng([seed, source.seed, *name])
        for k in range(per_task):
            kind = "base" if k % 2 == 0 else "improve"
            yield generate(source.task, source, rng, kind=kind)


def _improved(
    task: Task, before: ChosenScript, failed: Failure | None, rng: np.random.Generator
) -> tuple[ChosenScript, str, str]:
    """What an improvement is taught to be: (script, plan, kind of edit)."""
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
