"""MLE-Bench: train a policy on a task; or list tasks, grade, show prompts.

    python -m experiments.mle_bench --task=spooky-author
    python -m experiments.mle_bench --task=all --model=DIR --data=mlebench
    python -m experiments.mle_bench --resume --out=RUN
    python -m experiments.mle_bench --replay=RUN
    python -m experiments.mle_bench --list
    python -m experiments.mle_bench --task=spooky-author --show-prompt
    python -m experiments.mle_bench --task=spooky-author --grade=submission.csv

Real data are used where `mlebench prepare` has left them, else small synthetic data of
the same form. Guide: docs/mle_bench.md
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, OUT, PLOT, RESUME
from experiments.config.arms import ARMS, SYSTEMATIC, in_words
from experiments.config.errors import UsageError
from experiments.config.options import Options
from experiments.config.plugins import load_plugins
from experiments.config.settings import (
    Settings,
    longer,
    read_settings,
    same_limits,
)
from experiments.running.places import (
    Places,
    check_folder,
    check_tasks,
    default_out,
    show,
)
from rpg_tasks import Task, TaskError, commands, get_task

SECTIONS = cli.define_flags(Options)
# Where things are, and whether to do them: nothing of it changes a number.
DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "MLE-Bench's data folder; by default its own."
)
CACHE_DIR = flags.DEFINE_string(
    "cache_dir", None, "Where built data are kept; by default in the user's cache."
)
LEADERBOARDS = flags.DEFINE_string(
    "leaderboards", None, "MLE-Bench's competitions folder, for --reward=paper."
)
REPORT = flags.DEFINE_boolean("report", True, "Build the HTML report at the end.")
UNVERIFIED = flags.DEFINE_boolean(
    "unverified",
    False,
    "With --resume: also read a checkpoint that has lost its manifest of checksums.",
)
REPLAY = flags.DEFINE_string(
    "replay", None, "Feed this run's records again and compare every number."
)
# Other commands
LIST = flags.DEFINE_boolean("list", False, "Print the tasks and stop.")
LIST_ARMS = flags.DEFINE_boolean("list_arms", False, "Print the arms and stop.")
GRADE = flags.DEFINE_string("grade", None, "Grade this submission and stop.")
ANSWERS = flags.DEFINE_string(
    "answers", None, "With --grade: answers file; by default the prepared data's."
)
SAMPLE = flags.DEFINE_string(
    "sample", None, "With --answers: the sample submission, for the gain."
)
SPLIT = flags.DEFINE_enum(
    "split", "validation", ["validation", "test"], "With --grade: which answers."
)
SHOW_PROMPT = flags.DEFINE_boolean(
    "show_prompt",
    False,
    "Print the prompts (style full unless --prompt_style says so, without a run's "
    "limits) and stop.",
)
TOKENIZER = flags.DEFINE_string(
    "tokenizer", None, "With --show_prompt: folder or hub id of a chat template."
)
for _name in ("out", "resume", "dry_run", "plot"):
    flags.declare_key_flag(_name)
SECTIONS["data"] += [DATA_DIR, CACHE_DIR, LEADERBOARDS]
SECTIONS["run"] = [
    OUT,
    RESUME,
    UNVERIFIED,
    REPLAY,
    *SECTIONS["run"],
    REPORT,
    PLOT,
    DRY_RUN,
]
SECTIONS["other commands"] = [
    *(LIST, LIST_ARMS, SHOW_PROMPT, TOKENIZER, GRADE, ANSWERS, SAMPLE, SPLIT)
]


def prepare_options(options: Options) -> dict[str, Any]:
    """Which data to prepare, as options of ``prepare_task``."""
    return {
        "data": options.data,
        "size": options.size,
        "seed": options.seed,
        "cache_dir": CACHE_DIR.value,
        "data_dir": DATA_DIR.value,
    }


def _one_task(options: Options, flag: str) -> Task:
    if not options.task:
        raise UsageError(f"--{flag} needs --task=NAME (--list shows the names)")
    if len(options.task) > 1:
        raise UsageError(f"--{flag} takes one task, not {len(options.task)}")
    return get_task(options.task[0])


def list_arms() -> int:
    """Print each arm and what it learns from."""
    for arm in ARMS.values():
        print(f"{arm.name:<18} {in_words(arm)}")
    print("\nOBJECTIVE[+RATE[-PLACE]], every combination under one scheme of names:")
    for arm in SYSTEMATIC.values():
        print(f"{arm.name:<26} {in_words(arm)}")
    return 0


def _stored(folder: str, what: str) -> Settings:
    """The settings of a run's folder; flags that would change them are refused."""
    allowed = ("model",) if what == "replay" else ("budget", "steps")
    given = [f"--{n}" for n in cli.given_flags(Options) if n not in allowed]
    if given:
        raise UsageError(
            f"--{what} takes the configuration of {folder}: leave out "
            f"{', '.join(given)}"
        )
    settings = read_settings(Path(folder))
    load_plugins(settings.plugins)
    return settings


def settings_of(options: Options) -> Settings:
    """What to run: a stored run's settings, or those that the options mean.

    Raises:
        UsageError: flags contradict each other, or one is out of range.
    """
    from experiments.policies.models import describe
    from experiments.running.resolve import resolve_settings

    if REPLAY.value is not None and RESUME.value:
        raise UsageError("--replay starts from the beginning: leave out --resume")
    out = "" if OUT.value is None else OUT.value
    if RESUME.value and not out:
        raise UsageError("--resume needs the run's folder: add --out=DIR")
    if out:
        check_folder(Path(out), resume=RESUME.value)
    if REPLAY.value is not None:
        settings = _stored(REPLAY.value, "replay")
        if flags.FLAGS["model"].present:
            settings = dataclasses.replace(settings, model=options.model)
        return settings
    if RESUME.value and options.task is None:
        stored = _stored(out, "resume")
        return longer(stored, options.budget, options.steps)
    settings = resolve_settings(options, data_dir=DATA_DIR.value, describe=describe)
    if RESUME.value and options.budget is None and options.steps is None:
        # A preset's budget is for new runs; a longer one is asked for by name.
        settings = same_limits(settings, read_settings(Path(out)))
    return settings


def train(options: Options) -> int:
    """Resolve the options, then run the experiment; its exit code."""
    settings = settings_of(options)
    replay = None if REPLAY.value is None else Path(REPLAY.value)
    places = Places(
        out=Path(OUT.value or default_out(settings, replay=replay is not None)),
        data_dir=DATA_DIR.value,
        cache_dir=CACHE_DIR.value,
        leaderboards=LEADERBOARDS.value,
        unverified=UNVERIFIED.value,
    )
    if DRY_RUN.value:
        print(show(settings, places))
        return 0
    check_tasks(settings, places)
    check_folder(places.out, resume=RESUME.value)

    from experiments.reporting.build import build
    from experiments.reporting.terminal import story
    from experiments.running.launch import launch
    from experiments.running.parts import open_experiment

    experiment = open_experiment(settings, places, resume=RESUME.value, replay=replay)
    curves = functools.partial(story, plot=PLOT.value)
    report = build if REPORT.value else None
    return launch(experiment, report=report, show=curves)


def main() -> int:
    """Run the command that the flags name."""
    options = cli.read_flags(Options)
    try:
        if LIST.value:
            return commands.list_tasks(DATA_DIR.value)
        if LIST_ARMS.value:
            load_plugins(options.plugins)
            return list_arms()
        if GRADE.value is not None:
            return commands.grade_file(
                _one_task(options, "grade"),
                GRADE.value,
                answers=ANSWERS.value,
                sample=SAMPLE.value,
                split=SPLIT.value,
                prepare=prepare_options(options),
            )
        if SHOW_PROMPT.value:
            if options.prompt_style == "menu":
                raise UsageError("--show-prompt shows the styles full and compact")
            return commands.show_prompt(
                _one_task(options, "show_prompt"),
                style=options.prompt_style or "full",
                tokenizer=TOKENIZER.value,
                prepare=prepare_options(options),
            )
    except TaskError as error:
        raise UsageError(str(error)) from error
    if options.task is None and not RESUME.value and REPLAY.value is None:
        raise UsageError(
            "nothing to do: give --list, or --task=NAME to train (with --show-prompt "
            "or --grade=FILE it does only that)"
        )
    return train(options)


if __name__ == "__main__":
    cli.run(main, sections=SECTIONS)
