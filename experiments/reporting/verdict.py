"""Who has the better best score, by how much, and whether that is settled."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from experiments.reporting import contests, gates
from experiments.reporting.best import BestScores
from experiments.reporting.gates import Gate
from experiments.reporting.intervals import MANY_SEEDS, Interval
from experiments.reporting.runs import Experiment, Floats
from experiments.reporting.sheet import (
    Column,
    Row,
    Sheet,
    arrow,
    bounded,
    number,
    span,
    task_column,
    text_column,
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Two arms of a task by their best scores.

    Attributes:
        best: the task's best scores.
        first: name of the arm in question.
        second: what it is compared with.
        time: seconds that every run of both has reached.
        scores: of both at that time, metric units.
        lead: how far the first is ahead, with its interval; above 0: it is better.
        gate: why there is no verdict; None: there is one.
        units: how many seeds or chains are resampled, of the arm that has fewer.
    """

    best: BestScores
    first: str
    second: str
    time: float
    scores: tuple[float, float]
    lead: Interval
    gate: Gate | None
    units: int

    @property
    def name(self) -> str:
        """Of the task."""
        return self.best.task.short

    @property
    def settled(self) -> bool:
        """Whether the interval of the lead excludes 0, where a verdict is given.

        The chains of one run share a policy and parents: they settle nothing.
        """
        clear = self.lead.low > 0 or self.lead.high < 0
        return self.gate is None and clear and self.best.kind == "seeds"

    @property
    def ahead(self) -> str:
        """Name of the arm that is ahead; empty where none is."""
        if self.lead.value == 0 or math.isnan(self.lead.value):
            return ""
        return self.first if self.lead.value > 0 else self.second

    def sentence(self) -> str:
        """One sentence: who is ahead, by how much, settled or not."""
        a, b = (number(s, 4) for s in self.scores)
        found = f"{a} ({self.first}) and {b} ({self.second})"
        when = f"after {number(self.time)} s"
        if self.gate is not None:
            return (
                f"{self.name}: no verdict, because {self.gate.reason}; best scores "
                f"{when}: {found}."
            )
        if not self.ahead:
            return f"{self.name}: neither arm is ahead {when}; best scores: {found}."
        behind = self.second if self.ahead == self.first else self.first
        way = "higher" if self.best.task.higher_is_better else "lower"
        return (
            f"{self.name}: {self.ahead} is ahead of {behind} by "
            f"{number(abs(self.lead.value))} {when} (best scores {found}, {way} is "
            f"better), {self._settled()}."
        )

    def _settled(self) -> str:
        if self.best.kind == "chains" or math.isnan(self.lead.low):
            return "not settled: too few seeds, and the chains of a run share parents"
        low, high = self.lead.low, self.lead.high
        if self.ahead == self.second:
            low, high = -high, -low
        said = f"95% interval {span(low, high)} over {self.units} {self.best.kind}"
        if not self.settled:
            return f"not settled: {said} includes 0"
        few = self.units < MANY_SEEDS
        hint = "; with so few a hint, not proof" if few else ""
        return f"settled: {said} excludes 0{hint}"


def verdicts(experiment: Experiment, found: Sequence[BestScores]) -> list[Verdict]:
    """One a task that has two arms; the pair is that of ``contests.rivals``."""
    out = []
    for best in found:
        pair = contests.rivals(experiment, best.task)
        if pair is None or any(arm not in best.runs for arm in pair):
            continue
        time = best.until(pair)
        scores = [float(best.line(arm, _one(time)).value[0]) for arm in pair]
        runs = [experiment.of(best.task, arm) for arm in pair]
        count = [
            len(best.runs[arm])
            if best.kind == "seeds"
            else sum(len(one.chains) for one in best.runs[arm])
            for arm in pair
        ]
        out.append(
            Verdict(
                best,
                *pair,
                time=time,
                scores=(scores[0], scores[1]),
                lead=best.difference(*pair, time),
                gate=gates.why_no_verdict(*runs),
                units=min(count),
            )
        )
    return out


def _one(time: float) -> Floats:
    return np.array([time])


def headline(found: Sequence[Verdict], bests: Sequence[BestScores]) -> str:
    """The report's first sentence."""
    if not found:
        return _alone(bests)
    if len(found) == 1:
        return found[0].sentence()
    judged = [v for v in found if v.gate is None]
    why = gates.by_kind([(v.gate, v.name) for v in found if v.gate])
    if not judged:
        return f"Best score: no verdict on any of the {len(found)} tasks ({why})."
    parts = []
    for arm in dict.fromkeys(v.ahead for v in judged if v.ahead):
        won = [v for v in judged if v.ahead == arm]
        each = ", ".join(f"{v.name} by {number(abs(v.lead.value))}" for v in won)
        clear = [v.name for v in won if v.settled]
        parts.append(
            f"{arm} is ahead on {len(won)} of {len(judged)} tasks ({each}), settled on "
            f"{', '.join(clear) or 'none'}"
        )
    text = "; ".join(parts) or "no arm is ahead on any task"
    return f"Best score: {text}" + (f"; no verdict: {why}." if why else ".")


def _alone(bests: Sequence[BestScores]) -> str:
    if not bests:
        return "No run's wall time is on record, so best scores have no time axis."
    arms = dict.fromkeys(arm for best in bests for arm in best.runs)
    said = [
        f"{number(float(best.line(arm, _one(best.end)).value[0]), 4)} on "
        f"{best.task.short} after {number(best.end)} s"
        for best in bests
        for arm in best.runs
    ]
    return f"Only {', '.join(arms)} was run. Best score: {', '.join(said)}."


def best_sheet(
    experiment: Experiment, found: Sequence[BestScores], judged: Sequence[Verdict]
) -> Sheet:
    """Each arm's best score at the time that all runs of its task have reached."""
    rows: list[Row] = []
    for best in found:
        time = best.until(list(best.runs))
        verdict = next((v for v in judged if v.name == best.task.short), None)
        for arm, runs in best.runs.items():
            line = best.line(arm, _one(time))
            made = [gates.updates(run) for run in experiment.of(best.task, arm)]
            rows.append(
                {
                    "task": best.task.short,
                    "better": arrow(best.task),
                    "arm": arm,
                    "seconds": time,
                    "best": float(line.value[0]),
                    "best_low": float(line.low[0]),
                    "best_high": float(line.high[0]),
                    "at_the_end": float(best.line(arm, _one(best.end)).value[0]),
                    "ended_s": min(float(one.time[-1]) for one in runs),
                    "least_updates": min(count for count, _ in made),
                    "counted": f"{made[0][1]}s",
                    "interval_over": best.kind,
                    "no_verdict": verdict.gate.kind if verdict and verdict.gate else "",
                }
            )
    columns = (
        task_column(),
        text_column("arm"),
        Column("seconds", lambda r: number(r["seconds"])),
        Column(
            "best score", lambda r: bounded(r["best"], r["best_low"], r["best_high"])
        ),
        Column("at the end", lambda r: number(r["at_the_end"], 4)),
        Column("first run ended, s", lambda r: number(r["ended_s"])),
        Column("fewest", lambda r: f"{r['least_updates']} {r['counted']}"),
        Column("interval over", lambda r: r["interval_over"], left=True),
        Column("no verdict", lambda r: r["no_verdict"], left=True),
    )
    return Sheet(
        "best",
        "Best score so far, at a time that all runs have reached",
        columns,
        rows,
        note="Mean over runs of the best validation score so far, with a 95% interval. "
        "Fewest: updates (without a gradient: steps) of the run with the fewest; a "
        f"verdict needs {gates.MIN_UPDATES}.",
    )
