"""A speedrun's result: seconds to the target on fresh seeds, and margins of arms.

The best attempt of a run was the luckiest of many. What counts is its script with fresh
training seeds: a run is *confirmed* where every one of them reaches the target. An
arm's seconds and loss are means over its confirmed runs of their means over fresh
seeds. A difference within the noise floor, the spread of one script's seconds, shows
nothing, and seconds of two CPU models are never compared.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.config.crossing import Crossing
from experiments.config.plain import from_plain
from experiments.records.final import scored_of
from experiments.reporting.intervals import NONE, Interval, bootstrap
from experiments.reporting.noise import Noise, read_noise
from experiments.reporting.runs import Experiment, Floats, RunRecords
from rpg_tasks.goal import Goal
from rpg_tasks.speedrun import yardsticks
from rpg_tasks.speedrun.record import Speedrun

#: Of each arm, for a result; less is a demonstration.
MIN_RUNS, MIN_STEPS = 5, 40
CONFIRMED, NOT_CONFIRMED, UNTESTED = "confirmed", "not confirmed", "not tested"


@dataclasses.dataclass(frozen=True)
class ArmResult:
    """What an arm's runs have found.

    Attributes:
        arm: name.
        runs: number of them.
        attempts: that the machinery did not lose.
        crossed: those whose model reached the target.
        best: seconds of the best attempt, mean over runs that have one.
        new_bests: scripts that beat all before them by more than the noise floor, mean
            over runs.
        tested: runs whose best script has fresh seeds.
        confirmed: of those, runs with every fresh seed at the target.
        seeds: fresh seeds, and how many of them reached the target.
        seconds: on fresh seeds, of confirmed runs.
        loss: on fresh seeds, of confirmed runs.
        final_loss: the same on the final text.
        losses: of all their fresh seeds.
        each: seconds on fresh seeds, of each confirmed run.
        steps: of the run with the fewest.
        cpu_models: that its scripts ran on.
    """

    arm: str
    runs: int
    attempts: int
    crossed: int
    best: float
    new_bests: float
    tested: int
    confirmed: int
    seeds: tuple[int, int]
    seconds: float
    loss: float
    final_loss: float
    losses: tuple[float, ...]
    each: tuple[float, ...]
    steps: int
    cpu_models: frozenset[str]

    @property
    def verdict(self) -> str:
        """``confirmed`` where every run is."""
        if not self.tested:
            return UNTESTED
        return CONFIRMED if self.confirmed == self.runs else NOT_CONFIRMED


@dataclasses.dataclass(frozen=True)
class Margin:
    """Two arms, or the baseline in place of the second.

    Attributes:
        first: name of the arm in question.
        second: its rival.
        time: T_second / T_first - 1 with its 95% interval over runs; NaN where one is
            not measured.
        loss: (L* - L_first) / (L* - L_second) - 1; NaN likewise.
        within_noise: whether their seconds differ by no more than the noise floor;
            None where it was not measured.
        reason: why there is no margin; empty where there is one.
    """

    first: str
    second: str
    time: Interval
    loss: float
    within_noise: bool | None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Result:
    """Of one speedrun.

    Attributes:
        task: the speedrun.
        target: loss to reach.
        clock: ``CPU`` or ``wall``.
        noise: the baseline on fresh seeds; None where it was not measured.
        arms: each arm's result.
        margins: the arm in question against each other arm.
    """

    task: Goal
    target: float
    clock: str
    noise: Noise | None
    arms: list[ArmResult]
    margins: list[Margin]

    @property
    def demonstration(self) -> bool:
        """Whether runs are too few or too short for a result."""
        return any(one.runs < MIN_RUNS or one.steps < MIN_STEPS for one in self.arms)

    @property
    def baseline(self) -> float:
        """Mean seconds of the baseline; NaN where they were not measured."""
        return statistics.fmean(self.noise.seconds) if self.noise else math.nan


def results(experiment: Experiment) -> list[Result]:
    """One for every speedrun of an experiment."""
    tasks = [task for task in experiment.tasks if isinstance(task, Speedrun)]
    return [_result(experiment, task) for task in tasks]


def _result(experiment: Experiment, task: Goal) -> Result:
    names = experiment.arms(task)
    config: dict[str, Any] = next(
        (
            h["config"]
            for h in experiment.headers
            if h.get("config", {}).get("crossing")
        ),
        {},
    )
    stored = config.get("crossing")
    target = (
        from_plain(Crossing, stored).target if stored else getattr(task, "target", 0.0)
    )
    noises = [found for root in experiment.roots if (found := read_noise(root))]
    noise = noises[0] if noises else None
    arms = [arm_result(name, experiment.of(task, name), noise) for name in names]
    run = experiment.of(task, names[0])[0]
    rule = run.config.get("protocol", {}).get("rule", {})
    clock = "CPU" if rule.get("script_clock") == "cpu" else "wall"
    first = _in_question(arms)
    margins = [margin(first, one, target, noise) for one in arms if one is not first]
    return Result(task, target, clock, noise, arms, margins)


def _in_question(arms: Sequence[ArmResult]) -> ArmResult:
    return next((one for one in arms if one.arm == "rpg"), arms[0])


def arm_result(arm: str, runs: Sequence[RunRecords], noise: Noise | None) -> ArmResult:
    """What an arm's runs have found.

    Args:
        arm: name.
        runs: its seeds.
        noise: gives the floor of new bests.
    """
    floor = noise.floor if noise else 0.0
    bests, news = [], []
    for run in runs:
        at = run.attempts
        rows = [i for i in range(len(at)) if at.valid[i]]
        if rows:
            bests.append(float(min(at.score[i] for i in rows)))
        scripts = [str(at.program[i] or at.script[i]) for i in rows]
        scores = [float(at.score[i]) for i in rows]
        news.append(len(yardsticks.new_bests(scripts, scores, floor)))
    trials = [_trials(run) for run in runs]
    tested = [found for found in trials if found]
    sure = [found for found in tested if all(one["crossed"] for one in found)]
    every = [one for found in tested for one in found]
    losses = [one["loss"] for found in sure for one in found]
    return ArmResult(
        arm=arm,
        runs=len(runs),
        attempts=sum(int(run.attempts.known.sum()) for run in runs),
        crossed=sum(int(run.attempts.valid.sum()) for run in runs),
        best=_mean(bests),
        new_bests=_mean(news),
        tested=len(tested),
        confirmed=len(sure),
        seeds=(len(every), sum(bool(one["crossed"]) for one in every)),
        seconds=_over(sure, "seconds"),
        loss=_over(sure, "loss"),
        final_loss=_over(sure, "final_loss"),
        losses=tuple(losses),
        each=tuple(_mean([one["seconds"] for one in found]) for found in sure),
        steps=min(run.steps for run in runs),
        cpu_models=frozenset[str]().union(*(run.attempts.cpu_models for run in runs)),
    )


def _trials(run: RunRecords) -> list[dict[str, float]]:
    """Fresh seeds of a run's best script; none where it was not tested."""
    found = scored_of(run.final)
    record = found[0] if found else (run.final[-1] if run.final else None)
    if record is None:
        return []
    out = []
    for one in record.get("trials", ()):
        if one.get("lost"):
            continue
        loss = math.nan if one["loss"] is None else float(one["loss"])
        final = math.nan if one["final_loss"] is None else float(one["final_loss"])
        seconds = math.nan if one["seconds"] is None else float(one["seconds"])
        crossed = one["reason"] is None and math.isfinite(loss)
        out.append(
            {
                "seconds": seconds,
                "loss": loss,
                "final_loss": final,
                "crossed": crossed,
            }
        )
    return out


def _over(trials: Sequence[Sequence[dict[str, float]]], name: str) -> float:
    return _mean([_mean([one[name] for one in found]) for found in trials])


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _margin_time(first: Floats, second: Floats, axis: int = -1) -> Floats:
    return np.asarray(second.mean(axis) / first.mean(axis) - 1.0)


def margin(
    first: ArmResult, second: ArmResult, target: float, noise: Noise | None
) -> Margin:
    """Both margins of two arms, from their confirmed runs.

    Args:
        first: the arm in question.
        second: its rival.
        target: L*, nats a token.
        noise: gives the noise floor.
    """
    missing = [one.arm for one in (first, second) if not one.confirmed]
    none = Margin(first.arm, second.arm, NONE, math.nan, None)
    if missing:
        why = f"no confirmed script of {' and '.join(missing)}"
        return dataclasses.replace(none, reason=why)
    try:
        yardsticks.same_machine([*first.cpu_models, *second.cpu_models])
    except yardsticks.OtherMachine as error:
        return dataclasses.replace(none, reason=str(error))
    near = None
    if noise is not None:
        near = yardsticks.within_noise(first.seconds, second.seconds, noise.floor)
    loss = math.nan
    if second.loss < target:
        loss = yardsticks.margin_loss(first.loss, second.loss, target)
    time = bootstrap([np.array(first.each), np.array(second.each)], _margin_time)
    return Margin(first.arm, second.arm, time, loss, near)
