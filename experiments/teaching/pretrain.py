"""A whole pretraining run: data, training, export, a look at what the model writes.

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

from experiments.menus.task_menu import has_menu
from experiments.teaching.teacher import REFRESH
from experiments.teaching.tiny_model import start_digest, start_model
from experiments.teaching.training import SMOKE, PretrainSettings, Training
from experiments.teaching.writer import Writer, parses
from rpg_jax.llm import count_parameters
from rpg_tasks import load_tasks, prepare_task
from rpg_tasks.prepare import TaskData

_say = functools.partial(print, flush=True)


class Pretrained(NamedTuple):
    """What a run gives.

    Attributes:
        model: the folder that ``--model`` reads.
        held_out_loss: nats per token of answers and shown scripts not trained on.
        samples: what the model writes for a few tasks.
    """

    model: Path
    held_out_loss: float
    samples: list[PlanSample]


class PlanSample(NamedTuple):
    """One answer, not run: its task, whether its script parses, its plan."""

    task: str
    parses: bool
    plan: str


def make_settings(
    *,
    smoke: bool = False,
    init: str | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    sharpen: float = 1.6,
    seed: int = 0,
) -> PretrainSettings:
    """The settings of a run.

    Args:
        smoke: a very small model and few updates.
        init: go on from these weights, with fewer and gentler updates: ``tiny`` or the
            folder of a finished run.
        steps: updates; None: as many as the other settings say.
        tokens: of a batch, about.
        sharpen: factor on the exported model's logits.
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
    return dataclasses.replace(settings, seed=seed, sharpen=sharpen)


def pretrain(
    folder: Path,
    settings: PretrainSettings,
    *,
    start: Path | None = None,
    cache_dir: str | None = None,
    say: Callable[[str], None] = _say,
) -> Pretrained:
    """Train, export and try a model; a stopped run goes on.

    Args:
        folder: of the run; it exists. See ``training`` for what it holds.
        settings: what is run.
        start: the model folder whose weights are loaded; None: random ones.
        cache_dir: where built data are kept; None: the user's cache.
        say: told what is going on, a line at a time.

    Raises:
        TrainingError: training cannot go on.
        TaskError: a task's data cannot be built.
        CheckpointError: a checkpoint or the start cannot be read.
    """
    tasks = settings.tasks or tuple(task for task in load_tasks() if has_menu(task))
    say(f"preparing the synthetic data of {len(tasks)} tasks")
    data = [
        prepare_task(short, data="synthetic", cache_dir=cache_dir) for short in tasks
    ]
    run = Training(folder, data, settings, start=start)
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
    return Pretrained(model, loss, plan_samples(model, data))


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


def plan_samples(
    model: Path, data: Sequence[TaskData], *, number: int = 4
) -> list[PlanSample]:
    """What a model writes for a few tasks, two answers each, without running it."""
    writer = Writer.load(model)
    found = []
    for source in data[:: max(len(data) // number, 1)][:number]:
        prompt = writer.base_prompt(source)
        for answer in writer.write([prompt] * 2, seed=0):
            sound = answer.script is not None and parses(answer.script)
            lines = answer.text.strip().splitlines()
            plan = lines[0] if lines else ""
            found.append(PlanSample(source.task.short, sound, plan))
    return found
