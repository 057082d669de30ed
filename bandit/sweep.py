"""Tuning and evaluation of agents on cells of the study, kept in resumable files.

A cell is (environment, K, X, agent). Tuning and evaluation trials never share a seed:
evaluation uses seeds 0, 1, ..., tuning seeds ``TUNE_OFFSET`` and up. A finished cell is
one .npz, written under another name and then renamed, so that a kill at any moment
leaves either the whole cell or nothing of it.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from bandit import envs
from bandit.agents import AgentSpec
from bandit.simulate import Result, checkpoints, simulate

TUNE_OFFSET = 1_000_000
TUNE_TRIALS = 30
NUM_CHECKPOINTS = 60


@dataclass(frozen=True, eq=False)
class Cell:
    """One agent on one instance size."""

    env: str
    num_arms: int
    num_contexts: int
    agent: AgentSpec

    @property
    def stem(self) -> str:
        """File name of the cell, without its suffix."""
        size = f"K{self.num_arms:03d}_X{self.num_contexts:02d}"
        return f"{self.env}_{size}_{self.agent.name}"


class CellResult(NamedTuple):
    """What a cell's file holds; G is 1, or 2 after tuning (by median, by mean).

    Attributes:
      selection: how each setting was chosen: 'median', 'mean' or 'default', [G].
      hyper: the settings, one dict each, [G].
      steps: decisions at each checkpoint, [C].
      regret: [C, G, S].
      pseudo_regret: [C, G, S].
      rate: [C, G, S].
      elapsed: environment seconds, [C, G, S].
      rho_star: optimal rate, reward per second.
      tuning: median and mean final regret of every setting of the grid, [2, grid].
      seconds: wall seconds of tuning and of evaluation, compilation included.
    """

    selection: list[str]
    hyper: list[dict[str, float]]
    steps: np.ndarray
    regret: np.ndarray
    pseudo_regret: np.ndarray
    rate: np.ndarray
    elapsed: np.ndarray
    rho_star: float
    tuning: np.ndarray
    seconds: tuple[float, float]


def _setting(settings: dict[str, np.ndarray], index: int) -> dict[str, float]:
    return {name: float(values[index]) for name, values in settings.items()}


def _stack(settings: list[dict[str, float]]) -> dict[str, np.ndarray]:
    return {name: np.array([s[name] for s in settings]) for name in settings[0]}


def run_cell(
    cell: Cell,
    key: jax.Array,
    *,
    num_steps: int,
    num_trials: int,
    tune: bool,
    tune_trials: int = TUNE_TRIALS,
    progress: Callable[[int], None] | None = None,
    threads: int = 1,
) -> CellResult:
    """Tunes (by median final regret, and by mean) and evaluates one cell.

    Args:
      cell: what to run.
      key: the study's key.
      num_steps: decisions in a trial.
      num_trials: evaluation trials.
      tune: whether to search the agent's grid; else its defaults are used.
      tune_trials: tuning trials.
      progress: called with numbers of trial-steps done.
      threads: see ``simulate``.
    """
    env = envs.make_env(cell.env, cell.num_arms, cell.num_contexts)
    spec = cell.agent
    grid = spec.settings(cell.num_contexts) if tune else {}
    size = len(next(iter(grid.values()))) if grid else 1

    def run(build, hyper, seeds) -> tuple[Result, float]:
        started = time.perf_counter()
        result = simulate(
            key,
            build,
            env,
            hyper,
            seeds,
            num_steps,
            progress=progress,
            threads=threads,
        )
        return result, time.perf_counter() - started

    tuning, tune_seconds = np.zeros((2, 0)), 0.0
    if size > 1:
        seeds = TUNE_OFFSET + np.arange(tune_trials)
        result, tune_seconds = run(
            spec.tune_build or spec.builder(cell.num_contexts), grid, seeds
        )
        final = result.regret[-1]
        tuning = np.stack([np.median(final, axis=1), final.mean(axis=1)])
        if not np.isfinite(tuning).all():
            raise ValueError(
                f"{cell.env}, K = {cell.num_arms}, {spec.name}: a tuning setting's "
                "regret is not finite"
            )
        selection = ["median", "mean"]
        chosen = [_setting(grid, int(scores.argmin())) for scores in tuning]
    else:
        selection, chosen = ["default"], [spec.setting(env)]
    hyper = _stack(chosen) if chosen[0] else {"none": np.zeros(1)}
    build = spec.builder(cell.num_contexts)
    result, seconds = run(build, hyper, np.arange(num_trials))
    keep = checkpoints(result.steps, NUM_CHECKPOINTS)
    return CellResult(
        selection=selection,
        hyper=chosen,
        steps=result.steps[keep],
        regret=result.regret[keep],
        pseudo_regret=result.pseudo_regret[keep],
        rate=result.rate[keep],
        elapsed=result.elapsed[keep],
        rho_star=float(env.rho_star),
        tuning=tuning,
        seconds=(tune_seconds, seconds),
    )


def work_of(cell: Cell, *, num_steps: int, num_trials: int, tune: bool) -> int:
    """Trial-steps of a cell, for a progress bar."""
    grid = cell.agent.settings(cell.num_contexts) if tune else {}
    size = len(next(iter(grid.values()))) if grid else 1
    tuned = size > 1
    return num_steps * (num_trials * (1 + tuned) + TUNE_TRIALS * size * tuned)


def save_cell(path: Path, result: CellResult) -> None:
    """Writes a cell's file atomically."""
    header = {
        "selection": result.selection,
        "hyper": result.hyper,
        "rho_star": result.rho_star,
        "seconds": result.seconds,
    }
    arrays = {
        name: value
        for name, value in result._asdict().items()
        if isinstance(value, np.ndarray)
    }
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load_cell(path: Path) -> CellResult:
    """Reads a cell's file.

    Raises:
      ValueError: if the file is damaged; the message names it.
    """
    try:
        with path.open("rb") as file, np.load(file) as data:
            header = json.loads(str(data["header"]))
            arrays = {name: data[name] for name in data.files if name != "header"}
        return CellResult(**arrays, **{**header, "seconds": tuple(header["seconds"])})
    except Exception as error:
        raise ValueError(
            f"{path} is damaged ({error}); delete it and run again with --resume"
        ) from error
