"""Whether to price time: seconds that buy no score, measured before any training.

    python -m experiments.spread --task=spooky-author --model=tiny --samples=64
    python -m experiments.spread RUN...                # recorded runs
    python -m experiments.spread --csv=attempts.csv    # anybody's agent
    python -m experiments.spread --resume --out=DIR    # go on after a stop

W is p90/p10 of seconds among attempts of about equal score. Guide:
docs/how-to/when-to-price-time.md
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, OUT, RESUME, SEED
from experiments.config.errors import LedgerError
from experiments.config.options import Options
from experiments.records import rundir

if TYPE_CHECKING:  # slow to import
    from experiments.reporting.spread import TaskSpread

TASK = flags.DEFINE_list("task", None, "Sample untrained scripts: tasks, or all.")
MODEL = flags.DEFINE_string(
    "model", "tiny", "Policy, as in experiments.mle_bench (tiny, random-edits, ...)."
)
SAMPLES = flags.DEFINE_integer(
    "samples", None, "Scripts a task, in whole steps; 64 in a new run.", lower_bound=1
)
WALL = flags.DEFINE_float("wall_limit", None, "Limit of a script, s.", lower_bound=1.0)
ISOLATION = flags.DEFINE_string(
    "isolation", "auto", "Least level of the sandbox, as in experiments.mle_bench."
)
CACHE_DIR = flags.DEFINE_string(
    "cache_dir", None, "Where built data are kept; by default in the user's cache."
)
ARM = flags.DEFINE_list(
    "arm", None, "Of RUN: these arms, or all; by default those without a gradient."
)
CSV = flags.DEFINE_string("csv", None, "Measure this file: one line an attempt.")
SECONDS = flags.DEFINE_string("seconds_column", "seconds", "Its column of seconds.")
SCORE = flags.DEFINE_string(
    "score_column", "score", "Its column of scores; an empty one is a failure."
)
GROUP = flags.DEFINE_string(
    "group_column", None, "Its column of tasks; by default task or group, if there."
)
LOWER = flags.DEFINE_boolean("lower_is_better", False, "Of the file's scores.")
BINS = flags.DEFINE_integer("bins", 5, "Bins of equal score, at least.", lower_bound=2)
for _name in ("seed", "out", "resume", "dry_run"):
    flags.declare_key_flag(_name)
# The shared flag, as it is meant here.
flags.FLAGS[
    "out"
].help = "CSV of the table; with --task the folder of the runs (spread.csv there)."

_NEW = 64


def _options() -> Options:
    return Options(
        task=None if TASK.value is None else tuple(TASK.value),
        model=MODEL.value,
        seed=SEED.value,
        wall_limit=WALL.value,
        isolation=ISOLATION.value,
    )


def _sample() -> int:
    """Sample and run scripts, then measure them; the exit code."""
    from experiments.running import places, untrained

    options = _options()
    folder = Path(OUT.value or rundir.default_folder("spread", _name_of(options)))
    if RESUME.value:
        if OUT.value is None:
            raise cli.UsageError("--resume needs --out=DIR, the folder of the run")
        settings = untrained.resumed(folder, options, SAMPLES.value)
    else:
        settings = untrained.settings_for(options, SAMPLES.value or _NEW)
    if DRY_RUN.value:
        print(places.show(settings, places.Places(out=folder)))
        return 0
    code = untrained.sample(
        settings, folder, resume=RESUME.value, cache_dir=CACHE_DIR.value
    )
    if code in (130, 143):
        print(
            f"go on with: python -m experiments.spread --resume --out={folder}",
            file=sys.stderr,
        )
        return code
    try:
        found = _recorded([str(folder)])
    except cli.UsageError:
        if code:  # nothing has come out, and the reason was said
            return code
        raise
    return _show(found, folder / "spread.csv") or code


def _name_of(options: Options) -> str:
    tasks = options.task or ("all",)
    return tasks[0] if len(tasks) == 1 else f"{len(tasks)}-tasks"


def _recorded(folders: Sequence[str]) -> list[TaskSpread]:
    """From the records of runs."""
    from experiments.reporting import spread
    from experiments.reporting.load import load
    from experiments.reporting.runs import ReportError

    try:
        experiment = load(folders)
    except (ReportError, LedgerError) as error:
        raise cli.UsageError(str(error)) from error
    arms: list[str] = []
    if ARM.value is not None:
        arms = cli.choices("arm", ARM.value, experiment.arms())
    return spread.spreads(experiment, arms, bins=BINS.value)


def _file(path: str) -> list[TaskSpread]:
    """From a CSV file."""
    from experiments.reporting.runs import ReportError
    from experiments.reporting.spread_csv import Columns, read_spreads

    columns = Columns(SECONDS.value, SCORE.value, GROUP.value)
    try:
        return read_spreads(path, columns, lower_is_better=LOWER.value, bins=BINS.value)
    except ReportError as error:
        raise cli.UsageError(str(error)) from error


def _show(found: Sequence[TaskSpread], out: Path | None) -> int:
    """Print what happened, the table and the prediction; write the CSV."""
    from rich.console import Console

    from experiments.reporting import spread_words
    from experiments.reporting.terminal import WIDTH

    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(
        spread_words.headline(found), markup=False, highlight=False, style="bold"
    )
    sheet = spread_words.sheet(found)
    console.print(sheet.rich())
    console.print(spread_words.prediction(found), markup=False, highlight=False)
    if out is not None:
        try:
            sheet.write_csv(out)
        except OSError as error:
            print(f"error: cannot write {out} ({error.strerror})", file=sys.stderr)
            return 1
        print(f"table: {out}")
    return 0


def main(folders: Sequence[str]) -> int:
    """Measure what the command line names: tasks, runs or a file."""
    sampling = TASK.value is not None or RESUME.value
    named = [bool(folders), CSV.value is not None, sampling]
    if sum(named) != 1:
        raise cli.UsageError(
            "name one source: --task=NAME, folders of runs, or --csv=FILE"
        )
    if sampling:
        return _sample()
    out = None if OUT.value is None else Path(OUT.value)
    if CSV.value is not None:
        return _show(_file(CSV.value), out)
    return _show(_recorded(folders), out)


if __name__ == "__main__":
    _folders, _rest = cli.split_folders(sys.argv)
    cli.run(lambda: main(_folders), _rest)
