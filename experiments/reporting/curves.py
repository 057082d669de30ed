"""Budget curves: the score of a chain as a function of the seconds it has used.

Per chain, attempts in order: T_i is the running sum of seconds over all of them,
failures included, at least a tenth of a second each (a repeat was not run and takes no
execution seconds). The chain's value is a right-continuous step function of time, the
sample submission's score before its first valid attempt. A curve is the mean over
chains on the union of their event times.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.records.ledger import read
from experiments.records.recorded import ATTEMPTS, METRICS, by_step, is_repeat, spent_s
from experiments.records.rewards import MIN_SECONDS
from experiments.reporting.runs import Floats
from rpg_tasks.goal import Goal
from rpg_tasks.scores import oriented

CURVES = ("best", "last", "mean")
CLOCKS = ("execution", "total")


class Chain(NamedTuple):
    """One chain as a step function: ``value[i]`` holds from ``time[i]`` on."""

    time: Floats  # [n] seconds, increasing
    value: Floats  # [n] metric units


class Curve(NamedTuple):
    """Mean over chains (or over seeds of their means) with its standard error."""

    time: Floats  # [n] seconds
    mean: Floats  # [n] metric units
    se: Floats  # [n]; NaN with one chain


def chain(
    seconds: Sequence[float],
    scores: Sequence[float | None],
    *,
    baseline: float,
    task: Goal,
    curve: str = "best",
) -> Chain:
    """The step function of one chain.

    Args:
        seconds: of each attempt, shape [n].
        scores: metric units, None for a failure, shape [n].
        baseline: the sample submission's score.
        task: gives the orientation.
        curve: ``best`` valid score so far, score of the ``last`` attempt, or running
            ``mean`` of all; see ``wording.failures``.
    """
    if curve not in CURVES:
        raise ValueError(f"curve must be one of {CURVES}, got {curve!r}")
    score = np.array([np.nan if s is None else s for s in scores], np.float64)
    failed = np.isnan(score)
    if curve == "best":
        value = np.array([oriented(task, s) for s in score.tolist()])
        value = np.fmax.accumulate(value) if len(value) else value
        value = np.array([oriented(task, v) for v in value.tolist()])
        value = np.where(np.isnan(value), baseline, value)
    else:
        value = np.where(failed, baseline, score)
        if curve == "mean":
            value = np.cumsum(value) / np.arange(1, len(value) + 1)
    return Chain(np.cumsum(np.asarray(seconds, np.float64)), value)


def read_chains(
    folder: Path | str,
    task: Goal,
    *,
    baseline: float,
    clock: str = "execution",
    curve: str = "best",
    steps: int | None = None,
) -> list[Chain]:
    """The chains of a run, from its records.

    Args:
        folder: of the run.
        task: its task.
        baseline: the sample submission's score.
        clock: ``execution``, or ``total``: generation, execution, grading and an equal
            share of each step's update.
        curve: see ``chain``.
        steps: number of committed steps; later attempts do not count. None: all do.

    Returns:
        One per chain that has an attempt. Attempts that the machinery lost do not
        count: they take no time and have no score.
    """
    if clock not in CLOCKS:
        raise ValueError(f"clock must be one of {CLOCKS}, got {clock!r}")
    folder = Path(folder)
    update: dict[int, float] = {}
    if clock == "total" and (folder / METRICS).exists():
        for _, metrics in read(folder / METRICS):
            share = metrics["seconds"]["update"] / len(metrics["parents"])
            update[metrics["step"]] = share
    seconds: dict[int, list[float]] = {}
    scores: dict[int, list[float | None]] = {}
    for step, located in by_step(folder / ATTEMPTS):
        if steps is not None and step >= steps:
            break
        for _, record in located:
            if record["delta_s"] is None:
                continue
            spent = spent_s(record)
            if clock == "total":
                spent += record["generation_s"] + record["grading_s"]
                spent += update.get(step, 0.0)
            least = 0.0 if is_repeat(record) else MIN_SECONDS
            seconds.setdefault(record["chain"], []).append(max(spent, least))
            scores.setdefault(record["chain"], []).append(record["score"])
    return [
        chain(seconds[i], scores[i], baseline=baseline, task=task, curve=curve)
        for i in sorted(seconds)
    ]


def reached(chains: Sequence[Chain]) -> float:
    """The largest time that every one of the chains has reached, seconds."""
    return min((float(c.time[-1]) for c in chains if len(c.time)), default=0.0)


def at(one: Chain, time: Floats, *, baseline: float) -> Floats:
    """A chain's value at these times (right-continuous)."""
    index = np.searchsorted(one.time, time, side="right")
    return np.concatenate([[baseline], one.value])[index]


def grid(chains: Sequence[Chain], until: float) -> Floats:
    """0, every event time up to ``until``, and ``until``."""
    times = [c.time[c.time <= until] for c in chains]
    return np.unique(np.concatenate([[0.0, until], *times]))


def budget_curve(
    chains: Sequence[Chain],
    *,
    baseline: float,
    until: float,
    time: Floats | None = None,
) -> Curve:
    """Mean over chains at each event time, and its standard error.

    Args:
        chains: of one run.
        baseline: the value before a chain's first event.
        until: the largest time; ``reached`` of all arms.
        time: evaluate here instead of on the union of event times.
    """
    if not chains:
        raise ValueError("a curve needs at least one chain")
    time = grid(chains, until) if time is None else np.asarray(time, np.float64)
    # One chain at a time: [chains, events] would be large for long runs.
    total, square = np.zeros(len(time)), np.zeros(len(time))
    first = at(chains[0], time, baseline=baseline)
    for one in chains:
        value = at(one, time, baseline=baseline) - first
        total += value
        square += value * value
    return Curve(time, first + total / len(chains), _error(total, square, len(chains)))


def _error(total: Floats, square: Floats, count: int) -> Floats:
    if count < 2:
        return np.full(len(total), np.nan)
    variance = np.maximum(square - total * total / count, 0) / (count - 1)
    return np.asarray(np.sqrt(variance / count))


def over_seeds(
    seeds: Sequence[Sequence[Chain]], *, baseline: float, until: float
) -> Curve:
    """Mean over repetitions of their mean curves; the error is between repetitions.

    With one repetition it is ``budget_curve``, whose error is between chains.
    """
    if len(seeds) == 1:
        return budget_curve(seeds[0], baseline=baseline, until=until)
    time = grid([c for chains in seeds for c in chains], until)
    means = np.stack(
        [
            budget_curve(chains, baseline=baseline, until=until, time=time).mean
            for chains in seeds
        ]
    )
    error = means.std(axis=0, ddof=1) / np.sqrt(len(seeds))
    return Curve(time, means.mean(axis=0), error)
