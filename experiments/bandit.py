"""The continuous-time bandit study: regret of every agent on E1-E4.

    python -m experiments.bandit --env=E3 --arms=64
    python -m experiments.bandit --env=all --arms=5,10,20,30 --tune=paper --out=DIR
    python -m experiments.bandit --theory

A run's folder holds config.json, cells/ (one file a finished cell), result.csv,
curves.csv and figures; --resume goes on with the cells that are missing.
"""

import sys
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, OUT, RESUME, SEED
from experiments.records import rundir

ENVS = flags.DEFINE_list("env", ["E3"], "Environments, E1 to E4, or all.")
ARMS = flags.DEFINE_list("arms", ["64"], "Numbers of arms K, SKIP not counted.")
CONTEXTS = flags.DEFINE_integer("contexts", 4, "Number of contexts X.")
AGENTS = flags.DEFINE_list("agents", ["all"], "Agents by name, or all.")
STEPS = flags.DEFINE_integer("steps", 30_000, "Decisions in a trial.")
TRIALS = flags.DEFINE_integer("trials", 100, "Evaluation trials.")
TUNE = flags.DEFINE_enum(
    "tune", "none", ["none", "paper"], "Documented settings, or the paper's grids."
)
QUANTILE = flags.DEFINE_enum(
    "rate_quantile",
    "analytic",
    ["analytic", "sampled"],
    "The percentile behind NPG-NIW's and SPG-NIW's rate; sampled is the paper's.",
)
WORKERS = flags.DEFINE_integer("workers", 0, "Cells at a time; 0: one a core.")
THEORY = flags.DEFINE_boolean("theory", False, "Check the paper's theory instead.")
flags.declare_key_flag("seed")
flags.declare_key_flag("out")
flags.declare_key_flag("resume")
flags.declare_key_flag("dry_run")


@dataclass(frozen=True)
class Config:
    """What identifies a run; everything that can change a number is here."""

    envs: list[str]
    arms: list[int]
    contexts: int
    agents: list[str]
    steps: int
    trials: int
    tune: str
    rate_quantile: str
    seed: int


class Stopped(Exception):
    """Raised inside a worker when the run is being stopped."""


def _own_bandit() -> None:
    """Refuses PyPI's security linter, which is also called bandit."""
    import bandit

    root = Path(__file__).resolve().parent.parent
    if Path(bandit.__file__ or "").resolve().parent != root / "bandit":
        raise cli.UsageError(
            f"'import bandit' found another package, not this checkout's: run from "
            f"the checkout's folder ({root.name}/), as python -m experiments.bandit"
        )


def resolve() -> Config:
    """The configuration that the flags mean.

    Raises:
      UsageError: a flag is out of range.
    """
    from bandit.agents import AGENTS as KNOWN
    from bandit.envs import ENV_NAMES
    from bandit.simulate import MAX_STEPS

    for flag, most in ((CONTEXTS, 4096), (STEPS, MAX_STEPS), (TRIALS, 900_000)):
        if not 1 <= flag.value <= most:
            raise cli.UsageError(f"--{flag.name}={flag.value}: must be 1 to {most}")
    if SEED.value >= 2**32:
        raise cli.UsageError(f"--seed={SEED.value}: must be below 2**32")
    if WORKERS.value < 0:
        raise cli.UsageError(f"--workers={WORKERS.value}: must be 0 or more")
    arms = cli.int_list("arms", ARMS.value)
    if max(arms) > 100_000:
        raise cli.UsageError(f"--arms={max(arms)}: must be at most 100000")
    if RESUME.value and OUT.value is None:
        raise cli.UsageError("--resume needs the run's folder: add --out=DIR")
    return Config(
        envs=cli.choices("env", ENVS.value, ENV_NAMES),
        arms=arms,
        contexts=CONTEXTS.value,
        agents=cli.choices("agents", AGENTS.value, list(KNOWN)),
        steps=STEPS.value,
        trials=TRIALS.value,
        tune=TUNE.value,
        rate_quantile=QUANTILE.value,
        seed=SEED.value,
    )


def cells_of(config: Config) -> list:
    """The run's cells, in the order of the paper's figure."""
    from bandit.agents import AGENTS as KNOWN
    from bandit.agents import SAMPLED
    from bandit.sweep import Cell

    specs = dict(KNOWN)
    if config.rate_quantile == "sampled":
        specs.update(SAMPLED)
    return [
        Cell(env, num_arms, config.contexts, specs[name])
        for num_arms in config.arms
        for env in config.envs
        for name in config.agents
    ]


def compute(config: Config, folder: Path, workers: int) -> dict:
    """Runs the cells that are missing and returns all of them.

    Each finished cell is on disk before the next starts; Ctrl-C loses only the cells
    in flight.
    """
    import jax
    from tqdm import tqdm

    from bandit import sweep

    files = folder / "cells"
    files.mkdir(exist_ok=True)
    work = {"num_steps": config.steps, "num_trials": config.trials}
    work["tune"] = config.tune == "paper"
    cells = cells_of(config)
    done = {}
    for cell in cells:
        path = files / f"{cell.stem}.npz"
        if path.exists():
            done[cell] = sweep.load_cell(path)
    missing = [cell for cell in cells if cell not in done]
    if done:
        print(f"resuming: {len(done)} of {len(cells)} cells are done")
    key = jax.random.key(config.seed)
    stop, lock = threading.Event(), threading.Lock()
    threads = max(1, workers // max(len(missing), 1))
    bar = tqdm(
        total=sum(sweep.work_of(cell, **work) for cell in missing),
        unit="step",
        unit_scale=True,
        smoothing=0.05,
        mininterval=0.5 if sys.stderr.isatty() else 15.0,
        disable=not missing,
    )

    def run(cell) -> None:
        def progress(count: int) -> None:
            if stop.is_set():
                raise Stopped
            with lock:
                bar.update(count)

        if stop.is_set():
            raise Stopped
        with lock:
            bar.set_description(cell.stem)
        result = sweep.run_cell(cell, key, progress=progress, threads=threads, **work)
        sweep.save_cell(files / f"{cell.stem}.npz", result)
        done[cell] = result

    with bar, ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(run, cell) for cell in missing]
        try:
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
    return {cell: done[cell] for cell in cells}


def write_results(cells: dict, folder: Path) -> list[Path]:
    """result.csv, curves.csv and the figures; returns the figures' paths."""
    from bandit import analysis, claims, figures

    result_csv, curves_csv = folder / "result.csv", folder / "curves.csv"
    analysis.write_csv(result_csv, analysis.RESULT_FIELDS, analysis.result_rows(cells))
    analysis.write_csv(curves_csv, analysis.CURVE_FIELDS, analysis.curve_rows(cells))
    checked = list(claims.rows(cells))
    if checked:
        analysis.write_csv(folder / "claims.csv", claims.FIELDS, checked)
        (folder / "claims.md").write_text(claims.markdown(checked), encoding="utf-8")
    paths = figures.save(
        figures.regret_against_arms(result_csv), folder / "regret_vs_arms"
    )
    if any("mean" in result.selection for result in cells.values()):
        by_mean = figures.regret_against_arms(result_csv, selection="mean")
        paths += figures.save(by_mean, folder / "regret_vs_arms_tuned_by_mean")
    for num_arms in sorted({cell.num_arms for cell in cells}):
        figure = figures.regret_against_time(result_csv, curves_csv, num_arms=num_arms)
        paths += figures.save(figure, folder / f"regret_vs_time_K{num_arms:03d}")
    return paths


def print_table(result_csv: Path) -> None:
    """The final table, best agent first."""
    from rich.console import Console
    from rich.table import Table

    from bandit.analysis import read_csv

    rows = read_csv(result_csv)
    for env, num_arms in dict.fromkeys((r["env"], r["num_arms"]) for r in rows):
        part = [r for r in rows if (r["env"], r["num_arms"]) == (env, num_arms)]
        part.sort(key=lambda row: row["regret_mean"])
        first = part[0]
        table = Table(
            title=f"{env}, K = {num_arms}, X = {first['num_contexts']}: "
            f"{first['trials']} trials of {first['steps']:,} decisions, "
            f"ρ* = {first['rho_star']:.4f}",
            title_justify="left",
        )
        table.add_column("agent", no_wrap=True)
        tuned = any(row["selection"] != "default" for row in part)
        if tuned:
            table.add_column("tuned by")
        for name in (
            "regret",
            "− C-UCB (tuned), 95%",
            "pseudo-regret",
            "last ρ̂",
            "seconds",
        ):
            table.add_column(name, justify="right", no_wrap=True)
        for row in part:
            compared = row["diff_low"] == row["diff_low"]
            cells = [
                row["label"],
                *([row["selection"]] if tuned else []),
                f"{row['regret_mean']:,.0f} ± {row['regret_se']:,.0f}",
                f"{row['diff_mean']:+,.0f} [{row['diff_low']:+,.0f}, "
                f"{row['diff_high']:+,.0f}]"
                if compared and row["agent"] != "cucb-tuned"
                else "",
                f"{row['pseudo_regret_mean']:,.0f}",
                f"{row['last_rate']:.3f}",
                f"{row['tune_seconds'] + row['eval_seconds']:.1f}",
            ]
            table.add_row(*cells)
        console = Console() if sys.stdout.isatty() else Console(width=120)
        console.print(table)


def main() -> int:
    """Runs the study, or the theory checks."""
    import os

    _own_bandit()
    config = resolve()
    if THEORY.value:
        return _theory(config)
    name = f"{'-'.join(config.envs)}_K{'-'.join(map(str, config.arms))}"
    folder = Path(OUT.value or rundir.default_folder("bandit", name))
    workers = WORKERS.value or os.cpu_count() or 1
    if DRY_RUN.value:
        for field, value in asdict(config).items():
            print(f"{field} = {value}")
        print(f"out = {folder}\ncells = {len(cells_of(config))}")
        return 0
    rundir.open_run(folder, asdict(config), resume=RESUME.value)
    try:
        with rundir.sole_writer(folder):
            cells = compute(config, folder, workers)
            paths = write_results(cells, folder)
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
    print_table(folder / "result.csv")
    if (folder / "claims.md").exists():
        print((folder / "claims.md").read_text(encoding="utf-8"))
    print(f"results: {folder / 'result.csv'}, {folder / 'curves.csv'}")
    print("figures: " + ", ".join(str(p) for p in paths if p.suffix == ".png"))
    return 0


def _theory(config: Config) -> int:
    from bandit import theory

    folder = Path(OUT.value or rundir.default_folder("bandit", "theory"))
    if DRY_RUN.value:
        print(f"theory checks, seed = {config.seed}\nout = {folder}")
        return 0
    rundir.open_run(folder, {"theory": True, "seed": config.seed}, resume=RESUME.value)
    try:
        with rundir.sole_writer(folder):
            return theory.report(folder, seed=config.seed)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    cli.run(main)
