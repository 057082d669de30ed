"""Two arms of a task against each other: reward per second, and what it settles."""

import dataclasses
import math
from collections.abc import Sequence

from experiments.config.arms import ARMS
from experiments.reporting import numbers
from experiments.reporting.load import Experiment
from experiments.reporting.numbers import Interval
from experiments.reporting.sheet import Column, Sheet, gain, number, span
from rpg_tasks.registry import Task

#: With more tasks than this a table stands for the sentences.
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
    """

    task: Task
    first: str
    second: str
    rates: tuple[Interval, Interval]
    difference: Interval
    kind: str
    count: int

    @property
    def measured(self) -> bool:
        """Whether both arms have attempts that the machinery did not lose."""
        return all(math.isfinite(rate.value) for rate in self.rates)

    @property
    def settled(self) -> bool:
        """Whether the interval of the difference leaves out 0."""
        return self.difference.low > 0 or self.difference.high < 0

    @property
    def gain(self) -> float:
        """Of the first rate over the second, per cent; NaN where that is no number."""
        a, b = self.rates
        return 100 * (a.value / b.value - 1) if b.value > 0 else math.nan

    def sentence(self) -> str:
        """In plain words, with numbers."""
        a, b = self.rates
        if not self.measured:
            pairs = zip((self.first, self.second), self.rates, strict=True)
            empty = [arm for arm, rate in pairs if not math.isfinite(rate.value)]
            return (
                f"{self.task.short}: no measured attempts of {' and '.join(empty)}: "
                "nothing can be said."
            )
        if a.value == b.value == 0:
            return (
                f"{self.task.short}: neither {self.first} nor {self.second} earned "
                "anything: no script beat the sample submission."
            )
        if a.value == b.value:
            head = f"{self.first} and {self.second} earned the same per second"
        else:
            ahead, behind = self.first, self.second
            if a.value < b.value:
                ahead, behind = behind, ahead
            head = f"{ahead} earned more per second than {behind}"
        more = ""
        if math.isfinite(self.gain):
            more = f" ({gain(self.gain)}% for {self.first})"
        text = (
            f"{self.task.short}: {head}: {number(a.value)} {span(a.low, a.high)} "
            f"({self.first}) against {number(b.value)} {span(b.low, b.high)} "
            f"({self.second}) reward per second{more}. "
        )
        if self.difference.low != self.difference.low:
            return text + "One unit alone gives no interval: nothing is settled."
        overlap = a.low <= b.high and b.low <= a.high
        text += "The intervals overlap" if overlap else "The intervals do not overlap"
        text += f"; that of the difference, {span(*self.difference[1:])}, "
        return text + (
            f"leaves out 0{hint([self])}."
            if self.settled
            else "includes 0: this run does not settle which arm is better."
        )


def hint(found: Sequence[Contest]) -> str:
    """What to add where an interval leaves out 0 and rests on little."""
    if any(c.kind == "chains" for c in found):
        return ", but chains of so few seeds are a hint, no proof"
    fewest = min(c.count for c in found)
    return f", but {fewest} seeds are a hint, no proof" if fewest < 8 else ""


def rivals(experiment: Experiment, task: Task) -> tuple[str, str] | None:
    """The two arms to compare; None where there is one alone.

    rpg against vanilla where both are there, else rpg against the first of the others,
    else the first of the others against vanilla, else the first two. Never by what came
    out: the better of two would then always be in question, and always ahead.
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
        a, b = (numbers.units(experiment.of(task, arm), kind) for arm in pair)
        rates = numbers.rate_interval(a), numbers.rate_interval(b)
        difference = numbers.rate_difference(a, b)
        count = min(len(a.seconds), len(b.seconds))
        out.append(Contest(task, *pair, rates, difference, kind, count))
    return out


def contest_sheet(found: Sequence[Contest]) -> Sheet:
    """All of them as a table."""
    rows = []
    for c in found:
        row = {"task": c.task.short, "first": c.first, "second": c.second}
        for name, one in zip(("first", "second"), c.rates, strict=True):
            row |= {f"{name}_rate": one.value, f"{name}_low": one.low}
            row |= {f"{name}_high": one.high}
        row |= {"gain_pct": c.gain, "difference": c.difference.value}
        row |= {"difference_low": c.difference.low}
        row |= {"difference_high": c.difference.high, "settled": c.settled}
        rows.append(row | {"interval_over": c.kind})

    def rate(name: str):
        def text(row: dict) -> str:
            low, high = row[f"{name}_low"], row[f"{name}_high"]
            return f"{number(row[f'{name}_rate'])} {span(low, high)}"

        return text

    same = len({(c.first, c.second) for c in found}) == 1
    names = (found[0].first, found[0].second) if same else ("first", "second")
    columns = [Column("task", lambda r: r["task"], left=True)]
    if not same:
        columns += [
            Column("first", lambda r: r["first"], left=True),
            Column("second", lambda r: r["second"], left=True),
        ]
    columns += [
        Column(f"{names[0]}: reward/s", rate("first")),
        Column(f"{names[1]}: reward/s", rate("second")),
        Column("gain, %", lambda r: gain(r["gain_pct"])),
        Column(
            "difference",
            lambda r: span(r["difference_low"], r["difference_high"]),
        ),
        Column("leaves out 0", lambda r: "yes" if r["settled"] else "no", left=True),
    ]
    return Sheet(
        "contests",
        f"Reward per second: {names[0]} against {names[1]}",
        tuple(columns),
        rows,
        note="95% intervals in brackets; 'difference' is that of the difference.",
        about=(numbers.interval_note([(c.kind, c.count) for c in found]),),
    )
