"""A whole pretraining run: training, export, a look at what the model writes.

    settings = make_settings(smoke=True)
    done = pretrain(Path("runs/small"), settings)
    done.model, done.held_out_loss

``python -m experiments.pretrain`` calls this and adds the run's folder and its flags.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.menus.prompt import menu_prompt
from experiments.menus.task_menu import goal_of, menu_of
from experiments.teaching.teacher import REFRESH
from experiments.teaching.tiny_model import start_digest, start_model
from experiments.teaching.training import SMOKE, PretrainSettings, Training
from experiments.teaching.writer import Writer, parses
from rpg_jax.llm import count_parameters
from rpg_tasks.prompts import Attempt

_say = functools.partial(print, flush=True)


class Pretrained(NamedTuple):
    """What a run gives.

    Attributes:
        model: the folder that ``--model`` reads.
        held_out_loss: nats per token of answers not trained on.
        samples: what the model writes for a few tasks.
    """

    model: Path
    held_out_loss: float
    samples: list[AnswerSample]


class AnswerSample(NamedTuple):
    """One answer, not run: its task, whether its script parses, its lines."""

    task: str
    parses: bool
    lines: str


def make_settings(
    *,
    smoke: bool = False,
    init: str | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    seed: int = 0,
) -> PretrainSettings:
    """The settings of a run.

    Args:
        smoke: a very small model and few updates.
        init: go on from these weights, with fewer and gentler updates: ``tiny`` or the
            folder of a finished run.
        steps: updates; None: as many as the other settings say.
        tokens: of a batch, about.
        seed: of the examples and the start weights.

    Raises:
        TrainingError: ``init`` is no finished run.
        CheckpointError: the embedded policy is damaged.
    """
    settings = SMOKE if smoke else PretrainSettings()
    if init is not None:
        digest = start_digest(start_model(init))
        settings = dataclasses.replace(settings, teach=REFRESH, start=digest)
    if steps is not None:
        teach = dataclasses.replace(settings.teach, steps=steps)
        settings = dataclasses.replace(settings, teach=teach)
    if tokens is not None:
        settings = dataclasses.replace(settings, tokens=tokens)
    return dataclasses.replace(settings, seed=seed)


def pretrain(
    folder: Path,
    settings: PretrainSettings,
    *,
    start: Path | None = None,
    say: Callable[[str], None] = _say,
) -> Pretrained:
    """Train, export and try a model; a stopped run goes on.

    Args:
        folder: of the run; it exists. See ``training`` for what it holds.
        settings: what is run.
        start: the model folder whose weights are loaded; None: random ones.
        say: told what is going on, a line at a time.

    Raises:
        TrainingError: training cannot go on.
        CheckpointError: a checkpoint or the start cannot be read.
    """
    run = Training(folder, settings, start=start)
    try:
        say(
            f"{count_parameters(run.config):,} parameters, "
            f"{settings.teach.steps} updates of {settings.tokens} tokens, from "
            f"update {run.step}; folder {folder}"
        )
        _train(run, say)
        loss = run.held_out_loss()
        model = run.export()
    finally:
        run.close()
    (folder / "held_out.txt").write_text(f"{loss:.4f}\n", encoding="utf-8")
    return Pretrained(model, loss, answer_samples(model, run.tasks))


def _train(run: Training, say: Callable[[str], None]) -> None:
    """Update to the end, under a progress bar or with a line now and then."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    total = run.settings.teach.steps
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    terminal = sys.stderr.isatty()
    with Progress(*columns, disable=not terminal) as bar:
        line = bar.add_task("compiling", total=total, completed=run.step)
        recent: list[float] = []

        def on_step(step: int, row: dict[str, float]) -> None:
            recent.append(row["answer_loss"])
            mean = sum(recent[-20:]) / len(recent[-20:])
            words = f"answers {mean:.3f} nats/token"
            bar.update(line, completed=step, description=words)
            if not terminal and (step % 20 == 0 or step == total):
                say(f"step {step} of {total}: {words}")

        run.run(on_step)


def answer_samples(
    model: Path, tasks: Sequence[str], *, number: int = 4
) -> list[AnswerSample]:
    """What a model answers for a few tasks: a whole script, then an edit of it."""
    writer = Writer.load(model)
    found = []
    for name in tasks[:: max(len(tasks) // number, 1)][:number]:
        task = goal_of(name)
        menu = menu_of(task.short)
        (first,) = writer.write(task, [menu_prompt(task, menu)], seed=0)
        answers = [first]
        if first.script is not None:
            shown = Attempt(first.script, seconds=3.0, score=0.5, rank=(2, 8))
            text = menu_prompt(task, menu, shown)
            answers += writer.write(task, [text], [first.script], seed=1)
        for answer in answers:
            sound = answer.script is not None and parses(answer.script)
            found.append(AnswerSample(name, sound, answer.text.strip()))
    return found
