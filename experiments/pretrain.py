"""Teach the embedded policy to write scripts: corpus, tokenizer, training, weights.

    python -m experiments.pretrain                       # under an hour on two cores
    python -m experiments.pretrain --smoke               # all steps in a minute
    python -m experiments.pretrain --out=DIR --resume    # go on after a stop
    python -m experiments.pretrain --init=tiny           # learn changed scripts anew

The folder's model/ is what --model=FOLDER reads. Copied to rpg_jax/llm/tiny it is the
embedded policy, --model=tiny.
"""

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, OUT, RESUME, SEED
from experiments.records import rundir

STEPS = flags.DEFINE_integer("steps", None, "Updates; by default 1,100.", lower_bound=1)
TOKENS = flags.DEFINE_integer(
    "tokens", 5632, "Tokens of a batch, about.", lower_bound=1584
)
SHARPEN = flags.DEFINE_float(
    "sharpen", 1.6, "Factor on the exported model's logits.", lower_bound=0.1
)
INIT = flags.DEFINE_string(
    "init",
    None,
    "Go on from these weights, with 200 gentler updates: tiny, the embedded policy, or "
    "the folder of a finished run that was made with the same --sharpen.",
)
SMOKE = flags.DEFINE_boolean("smoke", False, "A very small model and few updates.")
CACHE_DIR = flags.DEFINE_string(
    "cache_dir", None, "Where built data are kept; by default in the user's cache."
)
for _name in ("seed", "out", "resume", "dry_run"):
    flags.declare_key_flag(_name)


def _settings() -> Any:
    from experiments.teaching.teach import REFRESH
    from experiments.teaching.training import SMOKE as SMALL
    from experiments.teaching.training import Settings, start_digest, start_model

    settings = SMALL if SMOKE.value else Settings()
    if not math.isfinite(SHARPEN.value):
        raise cli.UsageError(f"--sharpen={SHARPEN.value}: must be finite")
    if INIT.value is not None:
        start = start_digest(start_model(INIT.value))
        settings = dataclasses.replace(settings, recipe=REFRESH, start=start)
    if STEPS.value is not None:
        recipe = dataclasses.replace(settings.recipe, steps=STEPS.value)
        settings = dataclasses.replace(settings, recipe=recipe)
    if TOKENS.present:
        settings = dataclasses.replace(settings, tokens=TOKENS.value)
    return dataclasses.replace(settings, seed=SEED.value, sharpen=SHARPEN.value)


def _train(run: Any) -> None:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    total = run.settings.recipe.steps
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
                print(f"step {step} of {total}: {words}", flush=True)

        run.run(on_step)


def _samples(folder: Path, data: Any, number: int = 4) -> None:
    """What the model writes for a few tasks, without running it."""
    from rich.console import Console
    from rich.table import Table

    from experiments.teaching.writing import Writer, parses

    writer = Writer.load(folder)
    table = Table("task", "parses", "first line of the plan", title="Samples")
    for source in data[:: max(len(data) // number, 1)][:number]:
        prompt = writer.base_prompt(source)
        for answer in writer.write([prompt] * 2, seed=0):
            script = answer.script
            table.add_row(
                source.task.short,
                "no" if script is None or not parses(script) else "yes",
                answer.text.strip().splitlines()[0][:60] if answer.text.strip() else "",
            )
    Console().print(table)


def _run(folder: Path, settings: Any) -> None:
    """Trains, exports and shows samples."""
    from experiments.teaching.training import Training, start_model
    from rpg_jax.llm import count_parameters
    from rpg_tasks import load_tasks, prepare_task

    tasks = settings.tasks or tuple(load_tasks())
    print(f"preparing the synthetic data of {len(tasks)} tasks", flush=True)
    data = [
        prepare_task(short, data="synthetic", cache_dir=CACHE_DIR.value)
        for short in tasks
    ]
    start = None if INIT.value is None else start_model(INIT.value)
    run = Training(folder, data, settings, start=start)
    try:
        print(
            f"{count_parameters(run.config):,} parameters, "
            f"{settings.recipe.steps} updates of {settings.tokens} tokens, from "
            f"update {run.step}; folder {folder}",
            flush=True,
        )
        _train(run)
        loss = run.held_out_loss()
        model = run.export()
    finally:
        run.close()
    (folder / "held_out.txt").write_text(f"{loss:.4f}\n", encoding="utf-8")
    _samples(model, data)
    print(
        f"held-out loss {loss:.4f} nats per token of answers and of the scripts that "
        f"prompts show; model in {model}"
    )


def main() -> int:
    """Checks the flags and runs."""
    from experiments.teaching.training import TrainingError
    from rpg_jax.llm import CheckpointError
    from rpg_tasks import TaskError

    try:
        settings = _settings()
    except (TrainingError, CheckpointError) as error:
        raise cli.UsageError(str(error)) from None
    if DRY_RUN.value:
        print(settings)
        return 0

    folder = Path(OUT.value or rundir.default_folder("pretrain", "tiny"))
    if RESUME.value and OUT.value is None:
        raise cli.UsageError("--resume needs --out=DIR, the folder of the stopped run")
    rundir.open_run(folder, dataclasses.asdict(settings), resume=RESUME.value)
    try:
        with rundir.sole_writer(folder):
            _run(folder, settings)
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (TaskError, CheckpointError) as error:
        raise cli.UsageError(str(error)) from error
    except OSError as error:
        print(f"error: {folder}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"stopped; go on with: python -m experiments.pretrain --out={folder} "
            "--resume and the same flags",
            file=sys.stderr,
        )
        return 130
    return 0


if __name__ == "__main__":
    cli.run(main)
