"""The NanoGPT speedrun: arms learn to edit a training script until it is fast.

    python -m experiments.nanogpt
    python -m experiments.nanogpt --arms=rpg,rpg-best,vanilla --seeds=5 --steps=40
    python -m experiments.nanogpt --resume --out=RUN
    python -m experiments.nanogpt --replay=RUN

An attempt is a run of the script: it trains a tiny GPT and leaves its weights; the
harness computes the loss. What counts is CPU seconds to the target. Guide:
docs/nanogpt.md
"""

import functools
from pathlib import Path

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, OUT, PLOT, RESUME
from experiments.config.errors import UsageError
from experiments.config.plugins import load_plugins
from experiments.config.settings import Settings, longer, read_settings
from experiments.config.speedrun_options import EMBEDDED, SpeedrunOptions
from experiments.records.rundir import default_folder
from experiments.running.places import Places, check_folder, show

SECTIONS = cli.define_flags(SpeedrunOptions)
CACHE_DIR = flags.DEFINE_string(
    "cache_dir", None, "Where unpacked data are kept; by default in the user's cache."
)
REPORT = flags.DEFINE_boolean("report", True, "Build the HTML report at the end.")
REPLAY = flags.DEFINE_string(
    "replay", None, "Feed this run's records again and compare every number."
)
for _name in ("out", "resume", "dry_run", "plot"):
    flags.declare_key_flag(_name)
SECTIONS["run"] = [OUT, RESUME, REPLAY, *SECTIONS["run"], CACHE_DIR, REPORT, PLOT,
                   DRY_RUN]  # fmt: skip

UNTAUGHT = (
    "note: the embedded policy has not been taught this recipe yet: its scripts will "
    "hardly ever reach the target. --model=random-edits (the default) draws edits of "
    "it and needs no teaching."
)


def _stored(folder: str, what: str) -> Settings:
    """The settings of a run's folder; flags that would change them are refused."""
    allowed = () if what == "replay" else ("budget", "steps")
    given = [f"--{n}" for n in cli.given_flags(SpeedrunOptions) if n not in allowed]
    if given:
        raise UsageError(
            f"--{what} takes the configuration of {folder}: leave out "
            f"{', '.join(given)}"
        )
    settings = read_settings(Path(folder))
    if settings.crossing is None:
        raise UsageError(f"{folder} is a run of experiments.mle_bench")
    load_plugins(settings.plugins)
    return settings


def settings_of(options: SpeedrunOptions) -> Settings:
    """What to run: a stored run's settings, or those that the options mean.

    Raises:
        UsageError: flags contradict each other, or one is out of range.
    """
    from experiments.policies.models import describe
    from experiments.running.resolve_speedrun import resolve_speedrun

    if REPLAY.value is not None:
        if RESUME.value:
            raise UsageError("--replay starts from the beginning: leave out --resume")
        return _stored(REPLAY.value, "replay")
    if RESUME.value:
        if OUT.value is None:
            raise UsageError("--resume needs the run's folder: add --out=DIR")
        stored = _stored(OUT.value, "resume")
        steps = options.steps if flags.FLAGS["steps"].present else None
        return longer(stored, options.budget, steps)
    return resolve_speedrun(options, describe=describe)


def main() -> int:
    """Resolve the options, then run the experiment; its exit code."""
    options = cli.read_flags(SpeedrunOptions)
    settings = settings_of(options)
    name = settings.tasks[0] + ("-replay" if REPLAY.value else "")
    out = Path(OUT.value) if OUT.value else default_folder("nanogpt", name)
    places = Places(out=out, cache_dir=CACHE_DIR.value)
    if DRY_RUN.value:
        print(show(settings, places))
        return 0
    check_folder(places.out, resume=RESUME.value)

    from experiments.reporting.build import build
    from experiments.reporting.terminal import story
    from experiments.running.launch import launch
    from experiments.running.parts import open_experiment

    if options.model == EMBEDDED:
        print(UNTAUGHT)
    replay = None if REPLAY.value is None else Path(REPLAY.value)
    experiment = open_experiment(settings, places, resume=RESUME.value, replay=replay)
    curves = functools.partial(story, plot=PLOT.value)
    return launch(experiment, report=build if REPORT.value else None, show=curves)


if __name__ == "__main__":
    cli.run(main, sections=SECTIONS)
