"""The best score so far against wall time: what a run has found by then.

Per run, after each step: the best validation score of all its attempts so far, the
sample submission's before its first valid one. Time is the run's own wall time without
compilation (``used.total``). An arm's line is the mean over its runs; a run that has
ended keeps its last score.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.reporting import numbers
from experiments.reporting.intervals import RESAMPLES, Interval
from experiments.reporting.runs import Experiment, Floats, Ints, RunRecords
from rpg_tasks.goal import Goal

#: Points of a drawn line with its band.
POINTS = 200


class RunBest(NamedTuple):
    """One run; scores are turned so that higher is better, -inf before a valid one."""

    time: Floats  # [steps] seconds, at the end of each step
    chains: Floats  # [chains, steps] each chain's best so far


class Line(NamedTuple):
    """An arm's mean best score in metric units, with its 95% interval."""

    time: Floats  # [n] seconds
    value: Floats  # [n]
    low: Floats  # [n]; NaN with one unit
    high: Floats  # [n]


def run_best(run: RunRecords) -> RunBest:
    """Each chain's best score after each committed step of a run."""
    at, rows = run.attempts, run.attempts.valid
    names = np.unique(at.chain)
    found: Floats = np.full((len(names), run.steps), -np.inf)
    place = np.searchsorted(names, at.chain[rows])
    sign = 1.0 if run.task.higher_is_better else -1.0
    np.maximum.at(found, (place, at.step[rows]), sign * at.score[rows])
    return RunBest(run.metrics["total_s"], np.maximum.accumulate(found, axis=1))


@dataclasses.dataclass(frozen=True)
class BestScores:
    """The best scores of one task.

    Attributes:
        task: the task.
        baseline: the sample submission's score.
        runs: arm -> its seeds' runs.
        kind: what intervals resample, ``seeds`` or ``chains``.
    """

    task: Goal
    baseline: float
    runs: dict[str, list[RunBest]]
    kind: str

    def until(self, arms: Sequence[str]) -> float:
        """The largest time that every run of these arms has reached, seconds."""
        return min(float(one.time[-1]) for arm in arms for one in self.runs[arm])

    @property
    def end(self) -> float:
        """The largest time of any run, seconds: where the common axis ends."""
        return max(float(one.time[-1]) for runs in self.runs.values() for one in runs)

    @property
    def sign(self) -> float:
        """-1 where lower is better."""
        return 1.0 if self.task.higher_is_better else -1.0

    def grid(self, arm: str) -> Floats:
        """0, the ends of the arm's steps, and the end of the axis; thinned."""
        times = [one.time for one in self.runs[arm]]
        whole = np.unique(np.concatenate([[0.0, self.end], *times]))
        if len(whole) <= POINTS:
            return whole
        own = self.until([arm])
        return np.unique([*np.linspace(0.0, self.end, POINTS), own])

    def line(self, arm: str, time: Floats | None = None) -> Line:
        """Mean over an arm's runs at these times (by default at ``grid``)."""
        time = self.grid(arm) if time is None else time
        values = self._values(arm, time)
        draws = self._draws(values, np.random.default_rng(0))
        mean = np.mean([self._best(one) for one in values], axis=0)
        low, high = _bounds(draws, len(time))
        if self.sign < 0:
            low, high = -high, -low
        return Line(time, self.sign * mean, low, high)

    def difference(self, first: str, second: str, time: float) -> Interval:
        """How far the first arm is ahead (above 0: it is better), metric units."""
        at, rng = np.array([time]), np.random.default_rng(0)
        pair = [self._values(arm, at) for arm in (first, second)]
        means = [np.mean([self._best(one)[0] for one in values]) for values in pair]
        a, b = (self._draws(values, rng) for values in pair)
        draws = None if a is None or b is None else a - b
        low, high = _bounds(draws, 1)
        return Interval(float(means[0] - means[1]), float(low[0]), float(high[0]))

    def _values(self, arm: str, time: Floats) -> list[Floats]:
        """Each run's chains at these times, [chains, n]."""
        out = []
        for one in self.runs[arm]:
            index = np.searchsorted(one.time, time, side="right")
            none = np.full((len(one.chains), 1), -np.inf)
            out.append(np.concatenate([none, one.chains], axis=1)[:, index])
        return out

    def _best(self, chains: Floats) -> Floats:
        """Of all chains, [n]; the sample submission's where none has a score."""
        return self._filled(chains.max(axis=0))

    def _filled(self, best: Floats) -> Floats:
        return np.where(np.isfinite(best), best, self.sign * self.baseline)

    def _draws(
        self, values: Sequence[Floats], rng: np.random.Generator
    ) -> Floats | None:
        """Means of resampled runs, [resamples, n]; None with one unit.

        Over chains: each run is drawn again from its own chains and has the best of
        those drawn.
        """
        if self.kind == "seeds":
            each = np.stack([self._best(one) for one in values])
            picked: Ints = rng.integers(len(each), size=(RESAMPLES, len(each)))
            return _mean_of(each, picked)
        if max(len(one) for one in values) < 2:
            return None
        total: Floats = np.zeros((RESAMPLES, values[0].shape[1]))
        for one in values:
            picked = rng.integers(len(one), size=(RESAMPLES, len(one)))
            best = one[picked[:, 0]]
            for column in picked.T[1:]:
                best = np.maximum(best, one[column])
            total += self._filled(best)
        return total / len(values)


def _mean_of(each: Floats, picked: Ints) -> Floats:
    total = np.zeros((len(picked), each.shape[1]))
    for column in picked.T:
        total += each[column]
    return total / picked.shape[1]


def _bounds(draws: Floats | None, points: int) -> tuple[Floats, Floats]:
    """Percentile 95% interval at each point."""
    if draws is None:
        return np.full(points, np.nan), np.full(points, np.nan)
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    return low, high


def best_scores(experiment: Experiment, task: Goal) -> BestScores | None:
    """The best scores of a task; None where no run's wall time is on record."""
    runs: dict[str, list[RunBest]] = {}
    for arm in experiment.arms(task):
        found = [run_best(run) for run in experiment.of(task, arm) if run.steps]
        found = [one for one in found if np.isfinite(one.time).all()]
        if found:
            runs[arm] = found
    if not runs:
        return None
    baseline = experiment.of(task, experiment.arms(task)[0])[0].baseline
    return BestScores(task, baseline, runs, numbers.unit_kind(experiment, task))
