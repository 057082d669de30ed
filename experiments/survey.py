"""What a policy writes before reinforcement: shares that parse, run and submit.

    python -m experiments.survey --model=tiny --samples=24 --out=results/tiny_policy
    python -m experiments.survey --out=DIR --resume      # go on after a stop

Every task's scripts are sampled, run in the sandbox on the small synthetic data and
graded. The folder holds samples.jsonl (every script), result.csv, README.md, a figure.
The work is done by ``experiments.teaching.survey``.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, OUT, RESUME, SEED
from experiments.records import rundir

if TYPE_CHECKING:  # JAX is slow to import
    from experiments.teaching.survey_summary import Sample
    from sandbox_exec.runner import Engine

MODEL = flags.DEFINE_string("model", "tiny", "Policy: a name or a model folder.")
TASKS = flags.DEFINE_list("task", ["all"], "Tasks by name, or all.")
SAMPLES = flags.DEFINE_integer(
    "samples", 24, "Per task, half of them improvements.", lower_bound=2
)
WALL = flags.DEFINE_float("wall_limit", 120.0, "Limit of a run, s.", lower_bound=1.0)
ISOLATION = flags.DEFINE_string(
    "isolation", "auto", "Least level of the sandbox, as in experiments.mle_bench."
)
REFERENCE = flags.DEFINE_string(
    "reference",
    None,
    "Folder of TASK/cheap.py scripts to compare with; the repository's by default.",
)
CACHE_DIR = flags.DEFINE_string(
    "cache_dir", None, "Where built data are kept; by default in the user's cache."
)
for _name in ("seed", "out", "resume", "dry_run"):
    flags.declare_key_flag(_name)


def _config() -> dict[str, Any]:
    from rpg_tasks import load_tasks

    return {
        "model": "tiny" if MODEL.value == "tiny" else Path(MODEL.value).name,
        "tasks": cli.choices("task", TASKS.value, list(load_tasks())),
        "samples": SAMPLES.value,
        "wall_limit_s": WALL.value,
        "seed": SEED.value,
        "data": "synthetic, small",
    }


def _reference_folder() -> Path:
    if REFERENCE.value is not None:
        return Path(REFERENCE.value)
    return Path(__file__).parent.parent / "tests" / "reference_scripts"


def _engine() -> Engine:
    """Our own model's scripts run anywhere; a stranger's need a boundary."""
    from experiments.config.parse import isolation_of
    from experiments.running.machine import prepare_engine

    least = isolation_of(ISOLATION.value, real=False, model=MODEL.value)
    return prepare_engine(least)


def _style() -> str:
    """Of the prompts: the model's preset has it."""
    from experiments.config.presets import preset_for
    from experiments.policies.models import describe

    return preset_for(MODEL.value, describe).style


def _survey(folder: Path, config: dict[str, Any], engine: Engine) -> None:
    from rich.console import Console

    from experiments.teaching import survey_report
    from experiments.teaching.survey import Survey, survey_tasks
    from experiments.teaching.writer import Writer
    from sandbox_exec import LocalPool
    from sandbox_exec.slots import available_cores

    console = Console()
    say = functools.partial(console.print, highlight=False, markup=False)
    # The policy waits while scripts run, so that every core can have its slot.
    cores = available_cores()
    with LocalPool(slots=len(cores), cores=cores, engine=engine) as pool:
        survey = Survey(
            Writer.load(MODEL.value, style=_style()),
            pool,
            samples=config["samples"],
            seed=config["seed"],
            wall_s=config["wall_limit_s"],
            progress=lambda sample: say(_line(sample)),
        )
        known = survey_tasks(
            folder,
            survey,
            config["tasks"],
            reference=_reference_folder(),
            cache_dir=CACHE_DIR.value,
            say=say,
        )
    survey_report.write(folder, known)
    console.print(survey_report.table(known))


def _line(sample: Sample) -> str:
    gain = "" if sample.gain is None else f"gain {sample.gain:.3f} "
    return (
        f"  {sample.task} {sample.kind}: {sample.status} {gain}{sample.wall_s:.1f} s "
        f"{sample.reason[:60]}"
    )


def main() -> int:
    """Samples, runs, reports."""
    from rpg_jax.llm import CheckpointError
    from rpg_tasks import TaskError

    config = _config()
    engine = _engine()
    config["sandbox"] = engine.level.name
    if DRY_RUN.value:
        print(json.dumps(config, indent=2))
        return 0
    if RESUME.value and OUT.value is None:
        raise cli.UsageError("--resume needs --out=DIR, the folder of the stopped run")
    folder = Path(OUT.value or rundir.default_folder("survey", config["model"]))
    rundir.open_run(folder, config, resume=RESUME.value)
    try:
        with rundir.sole_writer(folder):
            _survey(folder, config, engine)
    except (TaskError, CheckpointError) as error:
        raise cli.UsageError(str(error)) from error
    except OSError as error:
        print(f"error: {folder}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"stopped; finished tasks are kept. Go on with the same flags and "
            f"--resume --out={folder}",
            file=sys.stderr,
        )
        return 130
    print(f"report: {folder / 'README.md'}")
    return 0


if __name__ == "__main__":
    cli.run(main)
