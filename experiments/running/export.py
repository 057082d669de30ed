"""A trained policy as a model folder that transformers, vLLM and ``--model`` read."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.errors import UsageError
from experiments.config.settings import Settings, read_settings
from experiments.policies.models import Model, load
from experiments.records.results import run_folder
from rpg_tasks.registry import get_task


class Chosen(NamedTuple):
    """One run of an experiment that has a trained policy."""

    task: str
    arm: str
    seed: int
    folder: Path

    @property
    def flags(self) -> str:
        """What names it on a command line."""
        return f"--task={self.task} --arm={self.arm} --run_seed={self.seed}"


def trained_runs(folder: Path, settings: Settings) -> list[Chosen]:
    """The experiment's runs that learn and have a checkpoint."""
    return [
        Chosen(task, arm.name, seed, place)
        for task in settings.tasks
        for arm in settings.arms
        for seed in settings.seeds
        if arm.gradient
        and (place := run_folder(folder, task, arm.name, seed)).is_dir()
        and any((place / "checkpoints").glob("step_*"))
    ]


def choose(
    runs: Sequence[Chosen], *, task: str | None, arm: str | None, seed: int | None
) -> Chosen:
    """The one run that is meant.

    Raises:
        UsageError: none, or several are left; the message lists them.
    """
    left = [
        run
        for run in runs
        if (task in (None, run.task))
        and (arm in (None, run.arm))
        and (seed in (None, run.seed))
    ]
    if len(left) == 1:
        return left[0]
    if not left:
        known = "; ".join(run.flags for run in runs) or "none has learned anything yet"
        raise UsageError(f"no such trained run here: {known}")
    shown = "; ".join(run.flags for run in left[:8])
    raise UsageError(f"{len(left)} runs are meant: choose one ({shown})")


def export_run(folder: Path, chosen: Chosen, out: Path, *, dtype: str) -> int:
    """Write a run's policy; how many steps it has learned from.

    Adapters are merged into the weights.

    Raises:
        UsageError: the model that the run began with cannot be read.
        CheckpointError: the folder exists, or the disk refuses.
        LoopError: the checkpoint does not belong to that model.
    """
    import jax

    from rpg_jax.llm.export import export_pretrained

    settings = read_settings(folder)
    menus = settings.style == "menu"
    model = load(settings.model, settings.machine, menus=menus)
    if not isinstance(model, Model):
        raise UsageError(f"{settings.model} has no weights")
    task = get_task(chosen.task)
    policy = model.policy(chosen.folder, chosen.seed, settings.protocol, task)
    try:
        steps: int = policy.restore()
        params = jax.tree.map(
            lambda x: x.astype(dtype) if x.ndim > 1 else x, policy.trained()
        )
    finally:
        policy.close()
    export_pretrained(
        out,
        model.config,
        params,
        more=functools.partial(_beside, model, settings, chosen, steps),
    )
    return steps


def _beside(
    model: Model, settings: Settings, chosen: Chosen, steps: int, folder: Path
) -> None:
    """Tokenizer, chat template, generation config and card."""
    from rpg_jax.llm import stop_ids

    model.tokenizer.save_pretrained(folder)
    stop = stop_ids(model.config, model.tokenizer)
    pad = model.config.pad_token_id
    generation: dict[str, Any] = {
        "do_sample": True,
        "temperature": settings.protocol.sampling.temperature,
        "eos_token_id": list(stop),
        "pad_token_id": stop[0] if pad is None else pad,
    }
    path = folder / "generation_config.json"
    path.write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
    answers = "choices from the task's menu" if settings.style == "menu" else "scripts"
    (folder / "README.md").write_text(
        f"# {settings.model}, trained on {chosen.task}\n\n"
        f"Weights of `{settings.model}` after {steps} steps of the arm `{chosen.arm}`, "
        f"seed {chosen.seed}, of an rpg_jax experiment "
        f"({', '.join(settings.sources)} data, protocol "
        f"{settings.protocol.name}). It answers with {answers}; what it is good for "
        "is that task alone. The start model's licence holds.\n",
        encoding="utf-8",
    )
