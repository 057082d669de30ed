"""The report's tables, each made from the records by the code that tests recompute."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.reporting import headline, learning, medals, numbers, tables
from experiments.reporting.budget import Budget
from experiments.reporting.curves import FAILURES
from experiments.reporting.load import Experiment
from experiments.reporting.sheet import (
    BLANK,
    Column,
    Sheet,
    arrow,
    gain,
    number,
    percent,
    signed,
    span,
    spread,
)
from rpg_tasks.registry import Task

VANILLA = "vanilla"
UNREAL = (
    "Medals and medians are those of the real competitions. These scores come from "
    "synthetic data: reaching a threshold here means nothing."
)
#: What a table of scores shows, by the curve that it is read from.
SCORES = {"best": "Best score", "last": "Last score", "mean": "Mean score"}
SIGN = (
    "Improvement: sign · (arm − vanilla) / |vanilla|, sign −1 where lower is better (↓)"
)
PAPER_COLUMN = (
    "Paper: its printed improvements, and their averages over the tasks of this table."
)


def _task_columns() -> tuple[Column, ...]:
    return (
        Column("task", lambda r: r["task"], left=True),
        Column("", lambda r: r["better"], left=True),
    )


def _score_sheet(
    name: str,
    title: str,
    cells: Sequence[tuple[Task, dict[str, tables.Cell]]],
    arms: Sequence[str],
    *,
    extra: Sequence[Column] = (),
    fields: dict[str, dict[str, Any]] | None = None,
    paper: bool = False,
    **texts: Any,
) -> Sheet:
    """Mean ± s.e. per task and arm, improvements over vanilla, their averages."""
    rows, gains = [], {arm: [] for arm in arms if arm != VANILLA and VANILLA in arms}
    for task, found in cells:
        row: dict[str, Any] = {"task": task.short, "better": arrow(task)}
        for arm in arms:
            cell = found.get(arm, tables.Cell(math.nan, math.nan))
            row |= {f"{arm}_mean": cell.mean, f"{arm}_se": cell.se}
        for arm in gains:
            change = tables.improvement(task, row[f"{arm}_mean"], row["vanilla_mean"])
            row[f"{arm}_improvement_pct"] = change
            gains[arm].append(change)
        row["paper_improvement_pct"] = (
            math.nan if task.paper is None else task.paper.improv_pct
        )
        rows.append(row | (fields or {}).get(task.short, {}))
    columns = [*_task_columns(), *extra]
    columns += [
        Column(arm, lambda r, a=arm: spread(r[f"{a}_mean"], r[f"{a}_se"]))
        for arm in arms
    ]
    columns += [
        Column(f"{arm}, %", lambda r, a=arm: gain(r[f"{a}_improvement_pct"]))
        for arm in gains
    ]
    if paper:
        columns.append(Column("paper, %", lambda r: gain(r["paper_improvement_pct"])))
    averaged = list(gains.values())
    if paper:
        averaged.append([row["paper_improvement_pct"] for row in rows])
        texts["about"] = (*texts.get("about", ()), PAPER_COLUMN)
    foot = _averages(len(columns) - len(averaged), averaged)
    return Sheet(name, title, tuple(columns), rows, foot if gains else (), **texts)


def _averages(
    before: int, columns: Sequence[Sequence[float]]
) -> tuple[tuple[str, ...], ...]:
    sums = [tables.summarise(values) for values in columns]
    names = (
        ("trimmed mean", lambda s: gain(s.trimmed_mean)),
        ("mean", lambda s: gain(s.mean)),
        ("median", lambda s: gain(s.median)),
        ("wins", lambda s: f"{s.wins} of {s.rows}"),
    )
    blank = ("",) * (before - 1)
    return tuple((name, *blank, *map(text, sums)) for name, text in names)


def score_sheet(budgets: Sequence[Budget], arms: Sequence[str], *, paper: bool):
    """The paper's table, at the largest budget that all chains of a task reached."""
    clock, score = budgets[0].clock, SCORES[budgets[0].curve]
    cells = [(b.task, {arm: b.final(arm) for arm in b.chains}) for b in budgets]
    fields = {b.task.short: {"seconds": b.until} for b in budgets}
    return _score_sheet(
        f"scores_{clock}",
        f"{score} at equal budgets, {clock} clock",
        cells,
        arms,
        extra=[Column("seconds", lambda r: number(r["seconds"]))],
        fields=fields,
        paper=paper,
        note="Mean over chains, ± standard error between seeds. Seconds: the largest "
        "budget that every chain of every arm reached.",
        about=(
            f"{SIGN}. Trimmed mean: without the highest and the lowest row.",
            f"{score}: {FAILURES[budgets[0].curve]}.",
            "Scores are those of the reward's split; with few steps the common budget "
            "is short, as one fast chain sets it: see the scores at the end beside it.",
        ),
    )


def end_sheet(budgets: Sequence[Budget], arms: Sequence[str], *, paper: bool) -> Sheet:
    """The same when every run is over: budgets are equal as far as runs finished."""
    score = SCORES[budgets[0].curve]
    return _score_sheet(
        "scores_end",
        f"{score} at the end of each run",
        [(b.task, {arm: b.last(arm) for arm in b.chains}) for b in budgets],
        arms,
        paper=paper,
        note=f"Mean over chains of the {score.lower()} ± standard error between seeds.",
        about=(
            f"{SIGN}.",
            "A step that has begun is finished: the table of arms has the seconds that "
            "the runs used.",
        ),
    )


def test_sheet(experiment: Experiment, *, paper: bool) -> Sheet:
    """The private test's scores by the same rules."""
    exam = headline.trained_on_test(experiment)
    cells = [
        (
            task,
            {
                arm: medals.test_score(experiment.of(task, arm))
                for arm in experiment.arms(task)
            },
        )
        for task in experiment.tasks
    ]
    return _score_sheet(
        "scores_test",
        "Test answers: the best scripts once more, on what they were rewarded for"
        if exam
        else "Private test: the best scripts, scored for the report alone",
        cells,
        experiment.arms(),
        paper=paper,
        note="Mean over the scripts that got a score, ± standard error between seeds; "
        "the medals' table counts the others.",
        about=(f"{SIGN}.",),
    )


def medal_sheet(experiment: Experiment, *, synthetic: bool) -> Sheet:
    """How many chains reached which threshold."""
    rows = []
    for task in experiment.tasks:
        for arm in experiment.arms(task):
            counts = medals.count(task, experiment.of(task, arm))
            limits = {
                f"{name}_threshold": getattr(task.medals, name, math.nan)
                for name in (*medals.MEDALS, "median")
            }
            rows.append(
                {"task": task.short, "better": arrow(task), "arm": arm}
                | counts
                | limits
            )
    count = [
        Column(name.replace("_", " "), lambda r, n=name: f"{r[n]:,}")
        for name in ("scripts", "scored", *medals.MEDALS, "above_median")
    ]
    return Sheet(
        "medals",
        "Private test: medals",
        (*_task_columns(), Column("arm", lambda r: r["arm"], left=True), *count),
        rows,
        note=UNREAL
        if synthetic
        else "Scripts that reached the real leaderboard's "
        "thresholds; a gold medal is not counted as silver.",
    )


def arm_sheet(experiment: Experiment) -> Sheet:
    """Validity, score given valid, seconds and reward rate, apart."""
    rows = []
    for task in experiment.tasks:
        kind = numbers.unit_kind(experiment, task)
        for arm in experiment.arms(task):
            cells = experiment.of(task, arm)
            row: dict[str, Any] = {
                "task": task.short,
                "better": arrow(task),
                "arm": arm,
                "seeds": len(cells),
                "attempts": sum(len(c.attempts) for c in cells),
            }
            for name, cell in numbers.over_seeds(cells).items():
                if name not in row:
                    row |= {name: cell.mean, f"{name}_se": cell.se}
            used = [float(c.metrics["total_s"][-1]) for c in cells if c.steps]
            row["used_s"] = float(np.mean(used)) if used else math.nan
            rate = numbers.rate_interval(numbers.units(cells, kind))
            row |= {"pooled_rate": rate.value, "rate_low": rate.low}
            row |= {"rate_high": rate.high, "interval_over": kind}
            rows.append(row)

    def both(name: str, digits: int = 3):
        return lambda r: spread(r[name], r[f"{name}_se"], digits)

    columns = (
        *_task_columns(),
        Column("arm", lambda r: r["arm"], left=True),
        Column("seeds", lambda r: str(r["seeds"])),
        Column("attempts", lambda r: f"{r['attempts']:,}"),
        Column("valid", lambda r: percent(r["valid_share"])),
        Column("score given valid", both("score_valid")),
        Column("s mean", lambda r: number(r["seconds_mean"])),
        Column("median", lambda r: number(r["seconds_median"])),
        Column("p95", lambda r: number(r["seconds_p95"])),
        Column("reward/s", lambda r: number(r["pooled_rate"])),
        Column("95% interval", lambda r: span(r["rate_low"], r["rate_high"])),
        Column("last third", lambda r: number(r["rate_last_third"])),
        Column("lost", lambda r: percent(r["share_infrastructure"])),
        Column("s used", lambda r: number(r["used_s"])),
    )
    return Sheet(
        "arms",
        "Validity, quality and time, apart",
        columns,
        rows,
        note="Means over seeds ± standard error. Seconds of an attempt on the "
        "protocol's clock; reward/s: sum of rewards (a failure adds 0) over sum of "
        "seconds, all seeds together; beside it the mean over seeds of the last third "
        "of the steps.",
        about=(
            "valid: share of the attempts that got a score, out of those that the "
            "machinery did not lose (lost: sandbox or grader failures, which count "
            "nowhere else). s used: wall time of a run's own phases, mean over seeds.",
        ),
    )


def learning_sheet(checks: Sequence[learning.Check]) -> Sheet:
    """First third against last third."""
    rows = []
    for c in checks:
        beyond = c.beyond_search or numbers.Interval(*[math.nan] * 3)
        rows.append(
            {
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
        )
    compared = any(c.beyond_search for c in checks)
    columns = [
        _task_columns()[0],
        Column("arm", lambda r: r["arm"], left=True),
        Column("first third", lambda r: number(r["first_third"])),
        Column("last third", lambda r: number(r["last_third"])),
        Column("change", lambda r: r["why_none"] or signed(r["change"])),
        Column("95% interval", lambda r: span(r["change_low"], r["change_high"])),
        Column("of", lambda r: f"{r['units']} {r['interval_over']}", left=True),
    ]
    if compared:
        columns += [
            Column("− search-only", lambda r: signed(r["beyond_search"])),
            Column(
                "95% interval",
                lambda r: span(r["beyond_search_low"], r["beyond_search_high"]),
            ),
        ]
    prices = {c.task.short: c.price for c in checks}
    said = "; ".join(
        f"{task}: {number(p.value, 4)} ({p.source})" for task, p in prices.items()
    )
    return Sheet(
        "learning",
        "Learning check: mean relative reward, last third of the steps − first third",
        tuple(columns),
        rows,
        note=f"Reward − price · charged seconds at one price of a second per task, the "
        f"same for all arms: {said}.",
        about=(
            "search-only takes no gradient: its change is what ranking earlier scripts "
            "alone gives."
            if compared
            else "Without the arm search-only, a change may "
            "come from ranking earlier scripts alone.",
            numbers.interval_note([(c.kind, c.count) for c in checks]),
        ),
    )


def status_sheet(experiment: Experiment, most: int = 6) -> Sheet:
    """Why attempts failed: the most frequent reasons of each task and arm."""
    rows, left = [], 0
    for task in experiment.tasks:
        for arm in experiment.arms(task):
            found: dict[tuple[str, str], int] = {}
            for cell in experiment.of(task, arm):
                at = cell.attempts
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
        *(
            Column(name, lambda r, n=name: r[n] or BLANK, left=True)
            for name in ("task", "arm", "status", "reason")
        ),
        Column("attempts", lambda r: f"{r['attempts']:,}"),
    )
    note = f"The {most} most frequent reasons of each task and arm."
    if left:
        note += f" {left:,} rarer ones are in attempts.csv."
    return Sheet("failures", "What went wrong", columns, rows, note=note)
