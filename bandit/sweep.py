"""Tuning and evaluation of agents on cells of the study, kept in resumable files.

A cell is (environment, K, X, agent). Tuning and evaluation trials never share a seed:
evaluation uses seeds 0, 1, ..., tuning seeds ``TUNE_OFFSET`` and up. A finished cell is
one .npz, written under another name and then renamed, so that a kill at any moment
leaves either the whole cell or nothing of it.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int, Key

from bandit.envs import make_env
from bandit.instance import Env
from bandit.registry import ENVS, AgentSpec, Builder, Tune
from bandit.simulate import NO_HYPER, Result, checkpoints, simulate

TUNE_OFFSET = 1_000_000
TUNE_TRIALS = 30
NUM_CHECKPOINTS = 60
#: Ways to pick a setting by its final regret over the tuning trials; the first is the
#: paper's.
SELECTIONS = ("median", "mean")


@dataclass(frozen=True, eq=False)
class Cell:
    """One agent on one instance size.

    Raises:
      ValueError: an environment that is not registered, or no arm or no context.
    """

    env: str
    num_arms: int
    num_contexts: int
    agent: AgentSpec

    def __post_init__(self) -> None:
        if self.env not in ENVS:
            raise ValueError(f"unknown environment {self.env!r}: register it first")
        if self.num_arms < 1 or self.num_contexts < 1:
            raise ValueError("need at least 1 arm and 1 context")

    @property
    def place(self) -> tuple[str, int, int]:
        """(environment, K, X): agents at one place are compared."""
        return self.env, self.num_arms, self.num_contexts

    @property
    def stem(self) -> str:
        """File name of the cell, without its suffix."""
        size = f"K{self.num_arms:03d}_X{self.num_contexts:02d}"
        return f"{self.env}_{size}_{self.agent.name}"

    def grid_size(self, tune: Tune) -> int:
        """Number of settings that tuning tries; 1: the agent is not tuned."""
        sizes = [len(v) for v in self.agent.grid(self.num_contexts, tune).values()]
        return int(np.prod(sizes, dtype=int))


class CellResult(NamedTuple):
    """What a cell's file holds; G is 1, or 2 after tuning (by median, by mean).

    Attributes:
      selection: how each setting was chosen: 'median', 'mean' or 'default'.
      hyper: the settings, one dict each.
      steps: decisions at each checkpoint.
      regret: rho* sum(delta) - sum(r).
      pseudo_regret: sum of per-decision gaps.
      rate: the agent's rate.
      elapsed: environment seconds.
      rho_star: optimal rate, reward per second.
      tuning: median and mean final regret of every setting of the grid.
      seconds: wall seconds of tuning and of evaluation, compilation included.
    """

    selection: list[str]
    hyper: list[dict[str, float]]
    steps: Int[np.ndarray, " checkpoints"]
    regret: Float[np.ndarray, "checkpoints settings trials"]
    pseudo_regret: Float[np.ndarray, "checkpoints settings trials"]
    rate: Float[np.ndarray, "checkpoints settings trials"]
    elapsed: Float[np.ndarray, "checkpoints settings trials"]
    rho_star: float
    tuning: Float[np.ndarray, "2 grid"]
    seconds: tuple[float, float]


def _setting(settings: Mapping[str, np.ndarray], index: int) -> dict[str, float]:
    return {name: float(values[index]) for name, values in settings.items()}


def _stack(settings: list[dict[str, float]]) -> dict[str, np.ndarray]:
    return {name: np.array([s[name] for s in settings]) for name in settings[0]}


#: Runs a builder's settings on seeds: the result, and its wall seconds.
_Run = Callable[[Builder, Mapping[str, Any], np.ndarray], tuple[Result, float]]


def _pick(
    cell: Cell, run: _Run, tune: Tune, tune_trials: int
) -> tuple[list[dict[str, float]], Float[np.ndarray, "2 grid"], float]:
    """The setting of least median and that of least mean final regret."""
    spec = cell.agent
    grid = spec.settings(cell.num_contexts, tune)
    build = spec.tune_build or spec.builder(cell.num_contexts)
    result, seconds = run(build, grid, TUNE_OFFSET + np.arange(tune_trials))
    final = result.regret[-1]
    scores = np.stack([np.median(final, axis=1), final.mean(axis=1)])
    if not np.isfinite(scores).all():
        raise ValueError(
            f"{cell.env}, K = {cell.num_arms}, {spec.name}: a tuning setting's "
            "regret is not finite"
        )
    return [_setting(grid, int(row.argmin())) for row in scores], scores, seconds


def run_cell(
    cell: Cell,
    key: Key[Array, ""],
    *,
    num_steps: int,
    num_trials: int,
    tune: Tune = "none",
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
      tune: 'none' uses the agent's documented setting; 'paper' and 'fine' search that
        grid of it.
      tune_trials: tuning trials.
      progress: called with numbers of trial-steps done.
      threads: see ``simulate``.

    Raises:
      ValueError: a number is out of range, or a setting's regret is not finite.
    """
    env = make_env(*cell.place)
    draw = ENVS[cell.env].draw
    if num_trials < 1 or tune_trials < 1:
        raise ValueError("need at least one trial")

    def run(
        build: Builder, hyper: Mapping[str, Any], seeds: np.ndarray
    ) -> tuple[Result, float]:
        started = time.perf_counter()
        result = simulate(
            key,
            build,
            env,
            hyper,
            seeds,
            num_steps,
            draw=draw,
            progress=progress,
            threads=threads,
        )
        return result, time.perf_counter() - started

    selection, chosen = ["default"], [cell.agent.setting(env)]
    scores, tune_seconds = np.zeros((2, 0)), 0.0
    if cell.grid_size(tune) > 1:
        selection = list(SELECTIONS)
        chosen, scores, tune_seconds = _pick(cell, run, tune, tune_trials)
    hyper = _stack(chosen) if chosen[0] else NO_HYPER
    build = cell.agent.builder(cell.num_contexts)
    result, seconds = run(build, hyper, np.arange(num_trials))
    return _kept(env, selection, chosen, result, scores, (tune_seconds, seconds))


def _kept(
    env: Env,
    selection: list[str],
    chosen: list[dict[str, float]],
    result: Result,
    scores: Float[np.ndarray, "2 grid"],
    seconds: tuple[float, float],
) -> CellResult:
    """The part of a result that goes to the cell's file."""
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
        tuning=scores,
        seconds=seconds,
    )


def work_of(
    cell: Cell, *, num_steps: int, num_trials: int, tune: Tune = "none"
) -> tuple[int, int]:
    """Trial-steps of a cell's tuning and of its evaluation."""
    size = cell.grid_size(tune)
    if size == 1:
        return 0, num_steps * num_trials
    return num_steps * TUNE_TRIALS * size, num_steps * num_trials * len(SELECTIONS)


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
        arrays["header"] = np.array(json.dumps(header))
        np.savez_compressed(file, allow_pickle=False, **arrays)
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
