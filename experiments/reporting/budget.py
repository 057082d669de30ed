"""Each task's budget curves on both clocks, from its runs' records."""

import dataclasses
from typing import Any

import numpy as np

from experiments.reporting import curves, tables
from experiments.reporting.curves import Chain, Curve
from experiments.reporting.runs import Experiment
from rpg_tasks.goal import Goal


@dataclasses.dataclass(frozen=True)
class BudgetUse:
    """The curves of one task on one clock.

    Attributes:
        task: the task.
        clock: ``execution`` or ``total``.
        curve: ``best``, ``last`` or ``mean``.
        baseline: the sample submission's score.
        chains: arm -> seed -> its chains.
        until: the largest time that every chain of every arm has reached, seconds.
        end: the same for the mean chain of every seed; later than ``until``. Chains
            that ended before keep their last value.
        longest: the largest time of any chain.
    """

    task: Goal
    clock: str
    curve: str
    baseline: float
    chains: dict[str, dict[int, list[Chain]]]
    until: float
    end: float
    longest: float

    def line(self, arm: str, until: float) -> Curve:
        """Mean and standard error of an arm up to a time."""
        seeds = list(self.chains[arm].values())
        return curves.over_seeds(seeds, baseline=self.baseline, until=until)

    def ended(self, arm: str) -> float:
        """When the mean chain of an arm's first seed ended, seconds."""
        each = self.chains[arm].values()
        return min(float(np.mean([c.time[-1] for c in one])) for one in each)

    def at(self, arm: str, time: float) -> list[float]:
        """Each seed's mean over chains at a time."""
        return [
            float(
                curves.budget_curve(
                    chains,
                    baseline=self.baseline,
                    until=time,
                    time=np.array([time]),
                ).mean[0]
            )
            for chains in self.chains[arm].values()
        ]

    def final(self, arm: str, time: float | None = None) -> tables.Estimate:
        """Mean over seeds at ``until`` (or another time) and its error."""
        return tables.repetitions(self.at(arm, self.until if time is None else time))

    def last(self, arm: str) -> tables.Estimate:
        """The same after the end of every chain."""
        return self.final(arm, self.longest)


def read_budget(
    experiment: Experiment, task: Goal, clock: str, curve: str = "best"
) -> BudgetUse | None:
    """The curves of a task; None where no chain has an attempt that counts."""
    chains: dict[str, dict[int, list[Chain]]] = {}
    baseline = experiment.of(task, experiment.arms(task)[0])[0].baseline
    for arm in experiment.arms(task):
        for run in experiment.of(task, arm):
            found = curves.read_chains(
                run.folder,
                task,
                baseline=baseline,
                clock=clock,
                curve=curve,
                steps=run.steps,
            )
            if found:
                chains.setdefault(arm, {})[run.seed] = found
    seeds = [found for arm in chains.values() for found in arm.values()]
    if not seeds:
        return None
    everyone = [chain for found in seeds for chain in found]
    until = curves.reached(everyone)
    means = [float(np.mean([c.time[-1] for c in found])) for found in seeds]
    longest = max(float(c.time[-1]) for c in everyone)
    return BudgetUse(
        task, clock, curve, baseline, chains, until, max(min(means), until), longest
    )


def thin(curve: Curve, points: int = 600) -> Curve:
    """For drawing: its values on an even grid, where it has more points than that."""
    if len(curve.time) <= points:
        return curve
    time = np.linspace(curve.time[0], curve.time[-1], points)
    index = np.searchsorted(curve.time, time, side="right") - 1
    return Curve(time, curve.mean[index], curve.se[index])


def rows(budget: BudgetUse) -> list[dict[str, Any]]:
    """The drawn points, for curves.csv."""
    out = []
    for arm in budget.chains:
        for time, mean, se in zip(*thin(budget.line(arm, budget.longest)), strict=True):
            out.append(
                {
                    "task": budget.task.short,
                    "arm": arm,
                    "clock": budget.clock,
                    "curve": budget.curve,
                    "seconds": float(time),
                    "mean": float(mean),
                    "se": float(se),
                    "all_chains_got_here": bool(time <= budget.until),
                }
            )
    return out


CURVE_FIELDS = (
    "task", "arm", "clock", "curve", "seconds", "mean", "se", "all_chains_got_here",
)  # fmt: skip
