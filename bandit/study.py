"""A study: which cells, run with resume, and what is written from them.

    from bandit.study import Study, run, write

    study = Study(envs=("E3",), arms=(10,), agents=("npg-niw", "imed"), trials=20)
    cells = run(study, Path("my_run"))
    write(study, cells, Path("my_run"))

The folder gets cells/ (one file a finished cell), result.csv, curves.csv, claims and
figures; a second ``run`` in it goes on with the cells that are missing.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import numpy as np

from bandit import analysis, claims, figures, sweep
from bandit.agents import AGENTS, SAMPLED
from bandit.estimate import Estimate, estimate
from bandit.progress import Silent, Watcher
from bandit.registry import ENVS, Tune
from bandit.simulate import MAX_STEPS
from bandit.sweep import Cell, CellResult

Quantile = Literal["analytic", "sampled"]
MOST_ARMS = 100_000
MOST_CONTEXTS = 4096
MOST_TRIALS = 900_000
MOST_STEPS = MAX_STEPS


@dataclass(frozen=True)
class Study:
    """What identifies a study; everything that can change a number is here.

    Attributes:
      envs: environments by name.
      arms: numbers of arms K, SKIP not counted; of environments that come in any size.
      contexts: numbers of contexts X, likewise.
      agents: agents by name.
      steps: decisions in a trial.
      trials: evaluation trials.
      tune: documented settings ('none'), the paper's grids or the fine ones.
      rate_quantile: the percentile behind NPG-NIW's and SPG-NIW's rate; sampled is the
        paper's.
      seed: of the study's key.

    Raises:
      ValueError: a field is out of its range; the message begins with its name.
    """

    envs: tuple[str, ...]
    arms: tuple[int, ...]
    contexts: tuple[int, ...] = (4,)
    agents: tuple[str, ...] = ("npg-niw", "cucb-tuned", "imed")
    steps: int = 30_000
    trials: int = 100
    tune: Tune = "none"
    rate_quantile: Quantile = "analytic"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("envs", "arms", "contexts", "agents"):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}: needs at least one entry, each once")
        for name, known in (("envs", ENVS), ("agents", AGENTS)):
            for value in getattr(self, name):
                if value not in known:
                    raise ValueError(f"{name}: {value!r} is none of {', '.join(known)}")
        for name, values, most in (
            ("arms", self.arms, MOST_ARMS),
            ("contexts", self.contexts, MOST_CONTEXTS),
            ("steps", (self.steps,), MOST_STEPS),
            ("trials", (self.trials,), MOST_TRIALS),
        ):
            if not all(1 <= value <= most for value in values):
                raise ValueError(f"{name}: must be 1 to {most}, got {values}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed: must be 0 to 2**32 - 1, got {self.seed}")
        if self.tune not in get_args(Tune):
            raise ValueError(f"tune: choose from {get_args(Tune)}")
        if self.rate_quantile not in get_args(Quantile):
            raise ValueError(f"rate_quantile: choose from {get_args(Quantile)}")

    def record(self) -> dict[str, Any]:
        """The study for config.json; a single X is a number, as in older runs."""
        content = asdict(self)
        for field in fields(self):
            if isinstance(content[field.name], tuple):
                content[field.name] = list(content[field.name])
        if len(self.contexts) == 1:
            content["contexts"] = self.contexts[0]
        return content

    def cells(self) -> list[Cell]:
        """The study's cells, in the order of the paper's figure."""
        specs = dict(AGENTS)
        if self.rate_quantile == "sampled":
            specs.update(SAMPLED)
        places = [
            (env, num_arms, num_contexts)
            for num_contexts in self.contexts
            for num_arms in self.arms
            for env in self.envs
            if ENVS[env].size is None
        ]
        for env in self.envs:
            size = ENVS[env].size
            if size is not None:
                places.append((env, *size))
        return [Cell(*place, specs[name]) for place in places for name in self.agents]

    def estimate(self, workers: int = 1) -> Estimate:
        """What the whole study costs."""
        return estimate(
            self.cells(),
            num_steps=self.steps,
            num_trials=self.trials,
            tune=self.tune,
            workers=workers,
        )


class Stopped(Exception):
    """Raised inside a worker when the study is being stopped."""


def finished(study: Study, folder: Path) -> dict[Cell, CellResult]:
    """The cells that are on disk.

    Raises:
      ValueError: a file is damaged, or its agent ran at other settings than now.
    """
    found = {}
    for cell in study.cells():
        path = folder / "cells" / f"{cell.stem}.npz"
        if path.exists():
            found[cell] = sweep.load_cell(path)
            _check_defaults(cell, found[cell], path)
    return found


def _check_defaults(cell: Cell, result: CellResult, path: Path) -> None:
    """Refuses to mix documented settings of different versions of this code."""
    if result.selection != ["default"]:
        return
    now, then = (
        cell.agent.setting(ENVS[cell.env].make(*cell.place[1:])),
        result.hyper[0],
    )
    same = now.keys() == then.keys()
    if not same or not all(np.isclose(now[k], then[k], rtol=1e-9) for k in now):
        raise ValueError(
            f"{path} was run at {then}, the documented setting is now {now}: choose "
            "another folder"
        )


def run(
    study: Study,
    folder: Path,
    *,
    workers: int = 1,
    watcher: Watcher | None = None,
) -> dict[Cell, CellResult]:
    """Runs the cells that are missing and returns all of them.

    Each finished cell is on disk before the next starts. Ctrl-C returns at once and
    loses only the cells in flight, whose threads end at their next chunk.

    Args:
      study: what to run.
      folder: the study's folder.
      workers: cells at a time.
      watcher: told how it goes.

    Raises:
      ValueError: workers < 1, a damaged file, or a regret that is not finite.
    """
    if workers < 1:
        raise ValueError(f"workers: must be at least 1, got {workers}")
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    done = {cell.stem: result for cell, result in finished(study, folder).items()}
    missing = [cell for cell in study.cells() if cell.stem not in done]
    task = _Task(study, folder, Silent() if watcher is None else watcher)
    task.watcher.begin(task.work(missing), len(done), len(done) + len(missing))
    threads = max(1, workers // max(len(missing), 1))
    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(task.run, cell, threads) for cell in missing]
        ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for cell, future in zip(missing, futures, strict=True):
            if future in ended:
                done[cell.stem] = future.result()
    finally:
        # Not ``with pool``: that would wait for chunks and compilations in flight.
        task.stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        task.watcher.end()
    return {cell: done[cell.stem] for cell in study.cells()}


class _Task:
    """What workers share: the study, its folder, who watches, whether to stop."""

    def __init__(self, study: Study, folder: Path, watcher: Watcher) -> None:
        self._study, self._folder = study, folder
        self.watcher = watcher
        self.stop = threading.Event()

    def work(self, cells: Iterable[Cell]) -> int:
        """Trial-steps of some cells."""
        study = self._study
        return sum(
            sum(
                sweep.work_of(
                    cell,
                    num_steps=study.steps,
                    num_trials=study.trials,
                    tune=study.tune,
                )
            )
            for cell in cells
        )

    def _progress(self, trial_steps: int) -> None:
        if self.stop.is_set():
            raise Stopped
        self.watcher.stepped(trial_steps)

    def run(self, cell: Cell, threads: int) -> CellResult:
        """One cell, saved.

        Raises:
          Stopped: the study is being stopped.
        """
        self._progress(0)
        began = time.monotonic()
        result = sweep.run_cell(
            cell,
            jax.random.key(self._study.seed),
            num_steps=self._study.steps,
            num_trials=self._study.trials,
            tune=self._study.tune,
            progress=self._progress,
            threads=threads,
        )
        sweep.save_cell(self._folder / "cells" / f"{cell.stem}.npz", result)
        self.watcher.finished(cell.stem, time.monotonic() - began)
        return result


def write(study: Study, cells: Mapping[Cell, CellResult], folder: Path) -> list[Path]:
    """result.csv, curves.csv, claims and figures; returns the figures' paths."""
    analysis.write_csv(
        folder / "result.csv",
        analysis.RESULT_FIELDS,
        analysis.result_rows(cells, tune=study.tune),
    )
    analysis.write_csv(
        folder / "curves.csv", analysis.CURVE_FIELDS, analysis.curve_rows(cells)
    )
    checked = list(claims.rows(cells))
    if checked:
        analysis.write_csv(folder / "claims.csv", claims.FIELDS, checked)
        (folder / "claims.md").write_text(claims.markdown(checked), encoding="utf-8")
    return draw(folder)


def draw(folder: Path) -> list[Path]:
    """All figures of a folder's result.csv and curves.csv; returns their paths."""
    result_csv, curves_csv = folder / "result.csv", folder / "curves.csv"
    rows = analysis.read_csv(result_csv)
    if all(row["agent"] == "oracle" for row in rows):
        return []
    contexts = sorted({row["num_contexts"] for row in rows})
    tuned = [s for s in sweep.SELECTIONS if any(r["selection"] == s for r in rows)]
    paths: list[Path] = []
    for num_contexts in contexts:
        suffix = f"_X{num_contexts:02d}" if len(contexts) > 1 else ""
        for selection in tuned or ["median"]:
            by = "_tuned_by_mean" if selection == "mean" else ""
            figure = figures.regret_against_arms(
                result_csv, selection=selection, num_contexts=num_contexts
            )
            paths += figures.save(figure, folder / f"regret_vs_arms{by}{suffix}")
        part = [row for row in rows if row["num_contexts"] == num_contexts]
        for num_arms in sorted({row["num_arms"] for row in part}):
            figure = figures.regret_against_time(
                result_csv, curves_csv, num_arms=num_arms, num_contexts=num_contexts
            )
            name = f"regret_vs_time_K{num_arms:03d}{suffix}"
            paths += figures.save(figure, folder / name)
    return paths
