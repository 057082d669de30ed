"""How long a study takes: a rough model of microseconds per trial and decision.

Fitted to runs on idle cores of an AMD EPYC, tens to thousands of trials side by side.
A busy machine takes longer; the order of magnitude is what to plan with.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from bandit.registry import Tune
from bandit.sweep import Cell, work_of

#: Seconds to compile one agent at one size; environments share it.
COMPILE_SECONDS = 8.0
_SMALL = 4


class Estimate(NamedTuple):
    """What a study costs.

    Attributes:
      cells: number of cells.
      trial_steps: decisions of all trials, tuning included.
      cpu_seconds: seconds of one core.
      seconds: seconds of wall time on the workers.
    """

    cells: int
    trial_steps: int
    cpu_seconds: float
    seconds: float


def _cost(cell: Cell, *, tuning: bool) -> float:
    """Microseconds per trial and decision."""
    actions, name = cell.num_arms + 1, cell.agent.name
    small = cell.num_contexts <= _SMALL
    # The state of many trials leaves the cache as X grows.
    spill = 1.0 if small else 1.0 + 0.25 * math.log2(cell.num_contexts / _SMALL)
    if name == "cucb-tuned":
        if small:
            return 0.1 + 0.011 * actions if tuning else 0.4 + 0.12 * actions
        return (0.6 + 0.022 * actions) * spill if tuning else 45 + 0.1 * actions
    if name in ("cucb-plugin", "cucb-theory", "imed", "uniform", "oracle"):
        return (0.1 + 0.008 * actions) * spill
    if name == "npg-neural":
        return (1.0 + 0.03 * actions) * spill
    return (0.15 + 0.015 * actions) * spill


def estimate(
    cells: Iterable[Cell],
    *,
    num_steps: int,
    num_trials: int,
    tune: Tune = "none",
    workers: int = 1,
) -> Estimate:
    """The cost of some cells.

    Args:
      cells: what is to be run.
      num_steps: decisions in a trial.
      num_trials: evaluation trials.
      tune: the grid to search.
      workers: cells at a time.

    Raises:
      ValueError: a number is below 1.
    """
    if min(num_steps, num_trials, workers) < 1:
        raise ValueError("steps, trials and workers must be at least 1")
    cells = list(cells)
    compiled = {(c.agent.name, c.num_arms, c.num_contexts) for c in cells}
    cpu, steps = COMPILE_SECONDS * len(compiled), 0
    for cell in cells:
        work = work_of(cell, num_steps=num_steps, num_trials=num_trials, tune=tune)
        steps += sum(work)
        for amount, tuning in zip(work, (True, False), strict=True):
            cpu += 1e-6 * amount * _cost(cell, tuning=tuning)
    return Estimate(len(cells), steps, cpu, cpu / min(workers, max(len(cells), 1)))


def duration(seconds: float) -> str:
    """Seconds in words that are right to the accuracy of an estimate."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
