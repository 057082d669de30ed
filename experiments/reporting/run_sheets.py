"""Tables of what runs did: the arms, the learning check, failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from experiments.reporting import intervals, learning, numbers
from experiments.reporting.runs import Experiment
from experiments.reporting.sheet import (
    Column,
    Row,
    Sheet,
    arrow,
    bounded,
    number,
    percent,
    signed,
    spread,
    task_column,
    text_column,
    with_interval,
)
from rpg_tasks.goal import Goal


def _arm_row(experiment: Experiment, task: Goal, arm: str, kind: str) -> Row:
    runs = experiment.of(task, arm)
    row: Row = {
        "task": task.short,
        "better": arrow(task),
        "arm": arm,
        "seeds": len(runs),
        "attempts": sum(len(run.attempts) for run in runs),
    }
    for name, estimate in numbers.over_seeds(runs).items():
        if name not in row:
            row |= {name: estimate.mean, f"{name}_se": estimate.se}
    used = [float(run.metrics["total_s"][-1]) for run in runs if run.steps]
    row["used_s"] = float(np.mean(used)) if used else math.nan
    rate = numbers.rate_interval(numbers.units(runs, kind))
    row |= {"pooled_rate": rate.value, "rate_low": rate.low}
    return row | {"rate_high": rate.high, "interval_over": kind}


def _spread(name: str) -> Callable[[Row], str]:
    return lambda r: spread(r[name], r[f"{name}_se"])


def arm_sheet(experiment: Experiment) -> Sheet:
    """Validity, score given valid, seconds and reward rate, apart."""
    rows = [
        _arm_row(experiment, task, arm, numbers.unit_kind(experiment, task))
        for task in experiment.tasks
        for arm in experiment.arms(task)
    ]
    columns = [
        task_column(),
        text_column("arm"),
        with_interval("reward/s", "pooled_rate", "rate_low", "rate_high"),
        Column("in last third", lambda r: number(r["rate_last_third"])),
        Column("valid", lambda r: percent(r["valid_share"])),
        Column("score if valid", _spread("score_valid")),
        Column("seconds: mean", lambda r: number(r["seconds_mean"])),
        Column("median", lambda r: number(r["seconds_median"])),
        Column("95th pct.", lambda r: number(r["seconds_p95"])),
        Column("attempts", lambda r: f"{r['attempts']:,}"),
        Column("seeds", lambda r: str(r["seeds"])),
        Column("run seconds", lambda r: number(r["used_s"])),
    ]
    repeats = ""
    if any(row["share_repeats"] for row in rows):
        columns.append(Column("repeats", lambda r: percent(r["share_repeats"])))
        repeats = (
            " Repeats: share of the attempts whose program the run had run before; "
            "they were not run again, so they take no execution seconds and add no "
            "reward to reward/s."
        )
    lost = ""
    if any(row["share_infrastructure"] for row in rows):
        columns.append(Column("lost", lambda r: percent(r["share_infrastructure"])))
        lost = (
            " Lost: share of the attempts that the sandbox or the grader lost; they "
            "count nowhere else."
        )
    return Sheet(
        "arms",
        "Each arm: validity, score, time and reward rate",
        tuple(columns),
        rows,
        note="Means over seeds ± standard error. Reward/s: sum of rewards (a failure "
        "adds 0) over sum of seconds, all seeds together, with its 95% interval; "
        "in last third: mean over seeds of the rate in the last third of the steps.",
        about=(
            "Arrows: whether a higher (↑) or a lower (↓) score is better. Valid: share "
            "of the attempts that got a score. Seconds are those of an attempt on the "
            "protocol's clock. Run seconds: wall time of a run, mean over seeds."
            f"{repeats}{lost}",
        ),
    )


def _check_row(c: learning.Check) -> Row:
    beyond = c.beyond_search or intervals.NONE
    return {
        "task": c.task.short,
        "better": arrow(c.task),
        "arm": c.arm,
        "price": c.price.value,
        "price_from": c.price.source,
        "first_third": c.first,
        "last_third": c.last,
        "change": c.change.value,
        "change_low": c.change.low,
        "change_high": c.change.high,
        "beyond_search": beyond.value,
        "beyond_search_low": beyond.low,
        "beyond_search_high": beyond.high,
        "interval_over": c.kind,
        "units": c.count,
        "why_none": c.why,
    }


def _prices(checks: Sequence[learning.Check]) -> str:
    """Each task's price, and where the prices come from."""
    prices = {c.task.short: c.price for c in checks}
    sources = {p.source for p in prices.values()}
    if len(sources) == 1:
        said = ", ".join(f"{task} {number(p.value, 4)}" for task, p in prices.items())
        return f"the {sources.pop()} ({said})"
    return "; ".join(
        f"{task} {number(p.value, 4)} ({p.source})" for task, p in prices.items()
    )


def _change(r: Row) -> str:
    if r["why_none"]:
        return str(r["why_none"])
    return bounded(r["change"], r["change_low"], r["change_high"], signed)


def _beyond_search(r: Row) -> str:
    low, high = r["beyond_search_low"], r["beyond_search_high"]
    return bounded(r["beyond_search"], low, high, signed)


def learning_sheet(checks: Sequence[learning.Check]) -> Sheet:
    """First third against last third."""
    compared = any(c.beyond_search for c in checks)
    columns = [
        text_column("task"),
        text_column("arm"),
        Column("first third", lambda r: number(r["first_third"])),
        Column("last third", lambda r: number(r["last_third"])),
        Column("change [95% interval]", _change),
        Column("over", lambda r: f"{r['units']} {r['interval_over']}", left=True),
    ]
    if compared:
        columns.append(Column("change − search-only's [95% interval]", _beyond_search))
    search = "Without the arm search-only, a change may come from search alone."
    if compared:
        search = (
            "search-only takes no gradient step: its change is what going on from the "
            "best earlier scripts gives without any learning."
        )
    return Sheet(
        "learning",
        "Learning check: relative reward in the last third of the steps against the "
        "first",
        tuple(columns),
        [_check_row(c) for c in checks],
        note="Mean relative reward: reward − price · charged seconds. The price of a "
        f"second is the same for all arms of a task: {_prices(checks)}.",
        about=(search, intervals.interval_note([(c.kind, c.count) for c in checks])),
    )


def status_sheet(experiment: Experiment, most: int = 6) -> Sheet:
    """Why attempts failed: the most frequent reasons of each task and arm."""
    rows: list[Row] = []
    left = 0
    for task in experiment.tasks:
        for arm in experiment.arms(task):
            found: dict[tuple[str, str], int] = {}
            for run in experiment.of(task, arm):
                at = run.attempts
                for status, reason in zip(at.status, at.reason, strict=True):
                    if status != "valid":
                        key = (status, " ".join(str(reason or "").split())[:120])
                        found[key] = found.get(key, 0) + 1
            ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
            left += max(len(ranked) - most, 0)
            rows += [
                {"task": task.short, "arm": arm, "status": status, "reason": reason,
                 "attempts": count}
                for (status, reason), count in ranked[:most]
            ]  # fmt: skip
    columns = (
        *map(text_column, ("task", "arm", "status", "reason")),
        Column("attempts", lambda r: f"{r['attempts']:,}"),
    )
    note = f"The {most} most frequent reasons of each task and arm."
    if left:
        note += f" {left:,} rarer ones are in attempts.csv."
    return Sheet("failures", "Attempts without a score", columns, rows, note=note)
