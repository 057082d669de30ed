"""Teach the embedded policy to write scripts: examples, tokenizer, training, weights.

    python -m experiments.pretrain                       # half an hour on two cores
    python -m experiments.pretrain --smoke               # all steps in a minute
    python -m experiments.pretrain --out=DIR --resume    # go on after a stop
    python -m experiments.pretrain --init=tiny           # learn changed scripts

The folder's model/ is what --model=FOLDER reads. Copied to rpg_jax/llm/tiny it is the
embedded policy, --model=tiny. The work is done by ``experiments.teaching.pretrain``.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, OUT, RESUME, SEED
from experiments.records import rundir

if TYPE_CHECKING:  # JAX is slow to import
    from experiments.teaching.pretrain import AnswerSample
    from experiments.teaching.training import PretrainSettings

STEPS = flags.DEFINE_integer("steps", None, "Updates; by default 1,100.", lower_bound=1)
TOKENS = flags.DEFINE_integer(
    "tokens", 4096, "Tokens of a batch, about.", lower_bound=512
)
INIT = flags.DEFINE_string(
    "init",
    None,
    "Go on from these weights, with 200 gentler updates: tiny, the embedded policy, or "
    "the folder of a finished run.",
)
SMOKE = flags.DEFINE_boolean("smoke", False, "A very small model and few updates.")
for _name in ("seed", "out", "resume", "dry_run"):
    flags.declare_key_flag(_name)


def _settings() -> PretrainSettings:
    from experiments.teaching.pretrain import make_settings
    from experiments.teaching.tiny_model import TrainingError
    from rpg_jax.llm import CheckpointError

    try:
        return make_settings(
            smoke=SMOKE.value,
            init=INIT.value,
            steps=STEPS.value,
            tokens=TOKENS.value if TOKENS.present else None,
            seed=SEED.value,
        )
    except (TrainingError, CheckpointError) as error:
        raise cli.UsageError(f"--init={INIT.value}: {error}") from None


def _run(folder: Path, settings: PretrainSettings) -> None:
    from experiments.teaching.pretrain import pretrain
    from experiments.teaching.tiny_model import start_model

    start = None if INIT.value is None else start_model(INIT.value)
    done = pretrain(folder, settings, start=start)
    _show(done.samples)
    print(
        f"held-out loss {done.held_out_loss:.4f} nats per token of answers; "
        f"model in {done.model}"
    )


def _show(samples: list[AnswerSample]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("task", "parses", "answer", title="Samples", show_lines=True)
    for sample in samples:
        table.add_row(sample.task, "yes" if sample.parses else "no", sample.lines)
    Console().print(table)


def main() -> int:
    """Checks the flags and runs."""
    from experiments.menus.task_menu import MenuError
    from experiments.teaching.tiny_model import TrainingError
    from rpg_jax.llm import CheckpointError
    from rpg_tasks import TaskError

    settings = _settings()
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
    except (TaskError, CheckpointError, MenuError) as error:
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
