"""The continuous-time bandit study: regret of every agent on E1-E4.

    python -m experiments.bandit --env=E3 --arms=64
    python -m experiments.bandit --env=all --arms=5,10,20,30 --tune=paper --out=DIR
    python -m experiments.bandit --env=all --arms=70,160 --contexts=8,64 --tune=paper \\
      --out=DIR
    python -m experiments.bandit --env=mine.py,E3         # a file that registers one
    python -m experiments.bandit --env=log.csv            # logged decisions, off-policy
    python -m experiments.bandit --theory

A run's folder holds config.json, cells/ (one file a finished cell), result.csv,
curves.csv and figures; --resume goes on with the cells that are missing. --dry_run
prints the configuration and an estimate of the time. The work is in ``bandit.study``.
"""

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, OUT, RESUME, SEED
from experiments.config.plugins import load_plugins
from experiments.records import rundir

if TYPE_CHECKING:
    from bandit.logged import Log, Propensity
    from bandit.registry import Tune
    from bandit.study import Quantile, Study

TUNES: "dict[str, Tune]" = {"none": "none", "paper": "paper", "fine": "fine"}
QUANTILES: "dict[str, Quantile]" = {"analytic": "analytic", "sampled": "sampled"}

PROPENSITIES: "dict[str, Propensity]" = {
    "column": "column",
    "uniform": "uniform",
    "frequency": "frequency",
}

ENVS = flags.DEFINE_list(
    "env",
    ["E3"],
    "Environments: E1 to E4, all, a file.py that registers some, or a file.csv of "
    "logged decisions.",
)
ARMS = flags.DEFINE_list("arms", ["64"], "Numbers of arms K, SKIP not counted.")
CONTEXTS = flags.DEFINE_list("contexts", ["4"], "Numbers of contexts X.")
AGENTS = flags.DEFINE_list("agents", ["all"], "Agents by name, or all.")
STEPS = flags.DEFINE_integer("steps", 30_000, "Decisions in a trial.")
TRIALS = flags.DEFINE_integer("trials", 100, "Evaluation trials.")
TUNE = flags.DEFINE_enum(
    "tune",
    "none",
    list(TUNES),
    "Documented settings, the paper's grids, or grids whose scales are 1.5 apart.",
)
QUANTILE = flags.DEFINE_enum(
    "rate_quantile",
    "analytic",
    list(QUANTILES),
    "The percentile behind NPG-NIW's and SPG-NIW's rate; sampled is the paper's.",
)
WORKERS = flags.DEFINE_integer("workers", 0, "Cells at a time; 0: one a core.")
LOGGED = flags.DEFINE_enum(
    "logged",
    "replay",
    ["replay", "resample"],
    "A file.csv: off-policy rates and replays, or an environment that draws its rows.",
)
PROPENSITY = flags.DEFINE_enum(
    "propensity",
    "column",
    list(PROPENSITIES),
    "How the arms of a file.csv were chosen: as its column says, all with equal "
    "probability, or by the context alone.",
)
THEORY = flags.DEFINE_boolean("theory", False, "Check the paper's theory instead.")
flags.declare_key_flag("seed")
flags.declare_key_flag("out")
flags.declare_key_flag("resume")
flags.declare_key_flag("dry_run")


def _own_bandit() -> None:
    """Refuses PyPI's security linter, which is also called bandit."""
    import bandit

    root = Path(__file__).resolve().parent.parent
    if Path(bandit.__file__ or "").resolve().parent != root / "bandit":
        raise cli.UsageError(
            f"'import bandit' found another package, not this checkout's: run from "
            f"the checkout's folder ({root.name}/), as python -m experiments.bandit"
        )


def _read_log(path: str) -> "Log":
    from bandit.logged import read_log

    try:
        return read_log(Path(path), propensity=PROPENSITIES[PROPENSITY.value])
    except ValueError as error:
        raise cli.UsageError(f"--env: {error}") from None


def _env_names() -> list[str]:
    """Names of environments; those of files are registered.

    Raises:
      UsageError: a file cannot be used.
    """
    from bandit import registry
    from bandit.resampled import resampled

    names: list[str] = []
    for word in ENVS.value:
        before = set(registry.ENVS)
        if word.endswith(".py"):
            load_plugins([word], flag="env")
            if before == set(registry.ENVS):
                raise cli.UsageError(
                    f"--env={word}: the file registers no environment "
                    "(bandit.registry.register_env)"
                )
        elif word.endswith(".csv"):
            log = _read_log(word)
            try:
                registry.register_env(resampled(Path(word).stem, log))
            except ValueError as error:
                raise cli.UsageError(f"--env={word}: {error}") from None
        else:
            names.append(word)
        names += [name for name in registry.ENVS if name not in before]
    return cli.choices("env", names, list(registry.ENVS))


def _files() -> dict[str, dict[str, str]]:
    """Names and contents (SHA-256) of files behind --env, for config.json."""
    found = {
        Path(word).name: hashlib.sha256(Path(word).read_bytes()).hexdigest()
        for word in ENVS.value
        if word.endswith((".py", ".csv"))
    }
    return {"env_files": found} if found else {}


def _check_sizes(names: list[str]) -> None:
    """Refuses --arms and --contexts where no environment would follow them."""
    from bandit import registry

    for flag, at in ((ARMS, 0), (CONTEXTS, 1)):
        sizes = [size for name in names if (size := registry.ENVS[name].size)]
        if len(sizes) < len(names) or not flag.present:
            continue
        for size in sizes:
            if flag.value != [str(size[at])]:
                raise cli.UsageError(
                    f"--{flag.name}={','.join(flag.value)}: the environment has "
                    f"{size[at]}; leave the flag out"
                )


def resolve() -> "Study":
    """The study that the flags mean.

    Raises:
      UsageError: a flag is out of range.
    """
    from bandit import registry, study

    for flag, most in ((STEPS, study.MOST_STEPS), (TRIALS, study.MOST_TRIALS)):
        if not 1 <= flag.value <= most:
            raise cli.UsageError(f"--{flag.name}={flag.value}: must be 1 to {most}")
    if SEED.value >= 2**32:
        raise cli.UsageError(f"--seed={SEED.value}: must be below 2**32")
    if WORKERS.value < 0:
        raise cli.UsageError(f"--workers={WORKERS.value}: must be 0 or more")
    arms = cli.int_list("arms", ARMS.value)
    contexts = cli.int_list("contexts", CONTEXTS.value)
    for name, values, most in (
        ("arms", arms, study.MOST_ARMS),
        ("contexts", contexts, study.MOST_CONTEXTS),
    ):
        if max(values) > most:
            raise cli.UsageError(f"--{name}={max(values)}: must be at most {most}")
    if RESUME.value and OUT.value is None:
        raise cli.UsageError("--resume needs the run's folder: add --out=DIR")
    envs = _env_names()
    _check_sizes(envs)
    return study.Study(
        envs=tuple(envs),
        arms=tuple(arms),
        contexts=tuple(contexts),
        agents=tuple(cli.choices("agents", AGENTS.value, list(registry.AGENTS))),
        steps=STEPS.value,
        trials=TRIALS.value,
        tune=TUNES[TUNE.value],
        rate_quantile=QUANTILES[QUANTILE.value],
        seed=SEED.value,
    )


def _print_plan(config: "Study", folder: Path, workers: int) -> None:
    """What a dry run says."""
    from bandit.estimate import duration

    for field, value in config.record().items():
        print(f"{field} = {value}")
    cost = config.estimate(workers)
    print(f"out = {folder}\ncells = {cost.cells}")
    print(
        f"estimate: {cost.trial_steps:,} trial-steps, about "
        f"{duration(cost.seconds)} on {workers} idle cores "
        f"({duration(cost.cpu_seconds)} of one core)"
    )


def _print_results(folder: Path, drawn: list[Path]) -> None:
    """Tables, claims, and where everything is."""
    from rich.console import Console

    from bandit import analysis, tables

    console = Console() if sys.stdout.isatty() else Console(width=120)
    for table in tables.terminal(analysis.read_csv(folder / "result.csv")):
        console.print(table)
    if (folder / "claims.md").exists():
        print((folder / "claims.md").read_text(encoding="utf-8"))
    print(f"results: {folder / 'result.csv'}, {folder / 'curves.csv'}")
    print("figures: " + ", ".join(str(p) for p in drawn if p.suffix == ".png"))


def main() -> int:
    """Runs the study, or the theory checks."""
    _own_bandit()
    from bandit import progress, study

    if any(word.endswith(".csv") for word in ENVS.value) and LOGGED.value == "replay":
        return _replay()
    config = resolve()
    if THEORY.value:
        return _theory(config.seed)
    name = f"{'-'.join(config.envs)}_K{'-'.join(map(str, config.arms))}"
    folder = Path(OUT.value or rundir.default_folder("bandit", name))
    workers = WORKERS.value or os.cpu_count() or 1
    if DRY_RUN.value:
        _print_plan(config, folder, workers)
        return 0
    rundir.open_run(folder, {**config.record(), **_files()}, resume=RESUME.value)
    try:
        with rundir.sole_writer(folder):
            cells = study.run(
                config, folder, workers=workers, watcher=progress.watcher()
            )
            drawn = study.write(config, cells, folder)
    except KeyboardInterrupt:
        print(
            f"stopped; finished cells are kept. Go on with the same flags and "
            f"--resume --out={folder}",
            file=sys.stderr,
        )
        return 130
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _print_results(folder, drawn)
    return 0


def _replay() -> int:
    """Off-policy rates and replays of one log."""
    from rich.console import Console

    from bandit import log_report, registry, replay

    if len(ENVS.value) > 1:
        raise cli.UsageError(
            "--env: a log is replayed alone; --logged=resample puts it beside others"
        )
    log = _read_log(ENVS.value[0])
    agents = cli.choices("agents", AGENTS.value, list(registry.AGENTS))
    if not 1 <= TRIALS.value <= 10_000:
        raise cli.UsageError(f"--trials={TRIALS.value}: must be 1 to 10000")
    name = Path(ENVS.value[0]).stem
    folder = Path(OUT.value or rundir.default_folder("bandit", name))
    print(f"{ENVS.value[0]}: {log_report.facts(log)}")
    refused = replay.refusal(log)
    if refused:
        print(f"no replay of learning agents: {refused}")
    if DRY_RUN.value:
        print(f"agents = {agents}\nout = {folder}")
        return 0
    record = {
        "logged": "replay",
        "propensity": PROPENSITY.value,
        "agents": agents,
        "trials": TRIALS.value,
        "seed": SEED.value,
        **_files(),
    }
    rundir.open_run(folder, record, resume=RESUME.value)
    with rundir.sole_writer(folder):
        found = log_report.run(
            log, folder, agents, trials=TRIALS.value, seed=SEED.value
        )
    console = Console() if sys.stdout.isatty() else Console(width=120)
    for table in log_report.terminal(*found):
        console.print(table)
    print(f"results: {folder / log_report.RATES}")
    return 0


def _theory(seed: int) -> int:
    from bandit import theory

    folder = Path(OUT.value or rundir.default_folder("bandit", "theory"))
    if DRY_RUN.value:
        print(f"theory checks, seed = {seed}\nout = {folder}")
        return 0
    rundir.open_run(folder, {"theory": True, "seed": seed}, resume=RESUME.value)
    try:
        with rundir.sole_writer(folder):
            return theory.report(folder, seed=seed)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    cli.run(main)
