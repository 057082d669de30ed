"""Two arms of a task against each other: reward per second, and what it shows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from experiments.config.arms import ARMS
from experiments.reporting import gates, intervals, numbers, wording
from experiments.reporting.gates import Gate
from experiments.reporting.intervals import Interval
from experiments.reporting.runs import Experiment
from experiments.reporting.sheet import (
    Column,
    Row,
    Sheet,
    bounded,
    percent_change,
    span,
    text_column,
    with_interval,
)
from rpg_tasks.goal import Goal

#: With more tasks than this a table replaces the sentences.
SENTENCES = 4


@dataclasses.dataclass(frozen=True)
class Contest:
    """Two arms of one task, by reward per second on the protocol's clock.

    Attributes:
        task: the task.
        first: name of the arm in question.
        second: what it is compared with.
        rates: of both, with intervals.
        difference: first - second, with its interval.
        kind: what is resampled.
        count: how many of the arm that has fewer.
        gate: why there is no verdict; None: there is one.
    """

    task: Goal
    first: str
    second: str
    rates: tuple[Interval, Interval]
    difference: Interval
    kind: str
    count: int
    gate: Gate | None = None

    @property
    def measured(self) -> bool:
        """Whether both arms have attempts that the machinery did not lose."""
        return all(math.isfinite(rate.value) for rate in self.rates)

    @property
    def excludes_0(self) -> bool:
        """Whether the interval of the difference excludes 0."""
        return self.difference.low > 0 or self.difference.high < 0

    @property
    def settled(self) -> bool:
        """Whether a verdict is given and that interval excludes 0."""
        return self.gate is None and self.excludes_0 and self.kind == "seeds"

    @property
    def percent(self) -> float:
        """100 (first / second - 1); NaN where the second rate is not above 0."""
        a, b = self.rates
        return 100 * (a.value / b.value - 1) if b.value > 0 else math.nan

    def sentence(self) -> str:
        """The result in words, with numbers."""
        a, b = self.rates
        name = self.task.short
        if not self.measured:
            pairs = zip((self.first, self.second), self.rates, strict=True)
            empty = [arm for arm, rate in pairs if not math.isfinite(rate.value)]
            return (
                f"{name}: no measured attempts of {' and '.join(empty)}, so the arms "
                "cannot be compared."
            )
        if a.value == b.value == 0:
            return (
                f"{name}: neither {self.first} nor {self.second} earned any reward: "
                f"{wording.unearned(self.task)}."
            )
        if self.gate is not None:
            return (
                f"{name}: {bounded(*a)} ({self.first}) and {bounded(*b)} "
                f"({self.second}) reward per second; no verdict, because "
                f"{self.gate.reason}."
            )
        more = ""
        if math.isfinite(self.percent):
            more = f" ({percent_change(self.percent)}% for {self.first})"
        text = (
            f"{name}: {self._order()}: {bounded(*a)} ({self.first}) against "
            f"{bounded(*b)} ({self.second}) reward per second{more}. "
        )
        if math.isnan(self.difference.low):
            return text + (
                "With a single seed or chain there is no interval, so this does not "
                "show which arm is better."
            )
        text += f"The 95% interval of the difference, {span(*self.difference[1:])}, "
        return text + (
            f"excludes 0{hint([self])}."
            if self.excludes_0
            else "includes 0, so this run does not show which arm is better."
        )

    def _order(self) -> str:
        a, b = self.rates
        if a.value == b.value:
            return f"{self.first} and {self.second} earned the same per second"
        ahead, behind = self.first, self.second
        if a.value < b.value:
            ahead, behind = behind, ahead
        return f"{ahead} earned more per second than {behind}"


def hint(found: Sequence[Contest]) -> str:
    """What to add where an interval excludes 0 but rests on few seeds."""
    if any(c.kind == "chains" for c in found):
        return "; the chains of a run share parents, and so few seeds settle nothing"
    fewest = min(c.count for c in found)
    if fewest >= intervals.MANY_SEEDS:
        return ""
    return f"; with {fewest} seeds this is a hint, not proof"


def rivals(experiment: Experiment, task: Goal) -> tuple[str, str] | None:
    """The two arms to compare; None where there is only one.

    rpg against vanilla where both are there, else rpg against the first of the others,
    else the first of the others against vanilla, else the first two. The choice does
    not depend on the results: otherwise the arm in question would always be ahead.
    """
    arms = experiment.arms(task)
    order = [name for name in ARMS if name in arms]
    order += sorted(set(arms) - set(order))
    if len(order) < 2:
        return None
    if "vanilla" in order and "rpg" not in order:
        return next(name for name in order if name != "vanilla"), "vanilla"
    return order[0], order[1]


def contests(experiment: Experiment) -> list[Contest]:
    """One a task that has two arms."""
    out = []
    for task in experiment.tasks:
        pair = rivals(experiment, task)
        if pair is None:
            continue
        kind = numbers.unit_kind(experiment, task)
        runs = [experiment.of(task, arm) for arm in pair]
        a, b = (numbers.units(of_arm, kind) for of_arm in runs)
        gate = gates.why_no_verdict(*runs)
        rates = numbers.rate_interval(a), numbers.rate_interval(b)
        difference = numbers.rate_difference(a, b)
        count = min(len(a.seconds), len(b.seconds))
        out.append(Contest(task, *pair, rates, difference, kind, count, gate))
    return out


def _row(c: Contest) -> Row:
    a, b = c.rates
    return {
        "task": c.task.short,
        "first": c.first,
        "second": c.second,
        "first_rate": a.value,
        "first_low": a.low,
        "first_high": a.high,
        "second_rate": b.value,
        "second_low": b.low,
        "second_high": b.high,
        "difference_pct": c.percent,
        "difference": c.difference.value,
        "difference_low": c.difference.low,
        "difference_high": c.difference.high,
        "excludes_0": c.excludes_0,
        "interval_over": c.kind,
        "no_verdict": c.gate.kind if c.gate else "",
    }


def contest_sheet(found: Sequence[Contest]) -> Sheet:
    """All of them as a table."""
    same = len({(c.first, c.second) for c in found}) == 1
    names = (found[0].first, found[0].second) if same else ("first", "second")
    columns = [text_column("task")]
    if not same:
        columns += [
            text_column("first"),
            text_column("second"),
        ]
    columns += [
        with_interval(f"{names[0]}: reward/s", "first_rate", "first_low", "first_high"),
        with_interval(
            f"{names[1]}: reward/s", "second_rate", "second_low", "second_high"
        ),
        Column("difference, %", lambda r: percent_change(r["difference_pct"])),
        with_interval("difference", "difference", "difference_low", "difference_high"),
        Column("excludes 0", lambda r: "yes" if r["excludes_0"] else "no", left=True),
    ]
    if any(c.gate for c in found):
        columns.append(Column("no verdict", lambda r: r["no_verdict"], left=True))
    return Sheet(
        "contests",
        f"Reward per second: {names[0]} against {names[1]}",
        tuple(columns),
        [_row(c) for c in found],
        note=f"95% intervals in brackets. Difference: {names[0]} − {names[1]}, reward "
        "per second; the last column says whether its interval excludes 0.",
        about=(intervals.interval_note([(c.kind, c.count) for c in found]),),
    )
