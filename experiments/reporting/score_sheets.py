"""Tables of scores: at equal budgets, at the end, on the private test; medals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from experiments.reporting import facts, medals, tables, wording
from experiments.reporting.budget import BudgetUse
from experiments.reporting.runs import Experiment
from experiments.reporting.sheet import (
    Column,
    Row,
    Sheet,
    arrow,
    number,
    percent_change,
    spread,
    task_column,
    text_column,
)
from rpg_tasks.goal import Goal

VANILLA = "vanilla"
#: What a table of scores shows, by the curve that it is read from.
SCORES = {"best": "Best score", "last": "Last score", "mean": "Mean score"}
SIGN = (
    "Improvement over vanilla in per cent: sign · (arm − vanilla) / |vanilla|, sign −1 "
    "where lower is better (↓)"
)
PAPER_COLUMN = (
    "Paper: the improvements that it prints, averaged over the tasks of this table."
)

#: Each arm's score on each task.
Scores = Sequence[tuple[Goal, Mapping[str, tables.Estimate]]]
_UNKNOWN = tables.Estimate(math.nan, math.nan)


def _estimate(arm: str) -> Column:
    return Column(arm, lambda r: spread(r[f"{arm}_mean"], r[f"{arm}_se"]))


def _percents(title: str, name: str) -> Column:
    return Column(f"{title}, %", lambda r: percent_change(r[name]))


def _score_rows(scores: Scores, arms: Sequence[str]) -> list[Row]:
    """One row a task: each arm's mean and error, and improvements over vanilla."""
    rows = []
    for task, found in scores:
        row: Row = {"task": task.short, "better": arrow(task)}
        for arm in arms:
            estimate = found.get(arm, _UNKNOWN)
            row |= {f"{arm}_mean": estimate.mean, f"{arm}_se": estimate.se}
        for arm in _compared(arms):
            row[f"{arm}_improvement_pct"] = tables.improvement(
                task, row[f"{arm}_mean"], row[f"{VANILLA}_mean"]
            )
        row["paper_improvement_pct"] = (
            math.nan if task.paper is None else task.paper.improv_pct
        )
        rows.append(row)
    return rows


def _compared(arms: Sequence[str]) -> list[str]:
    """Arms with an improvement over vanilla."""
    return [arm for arm in arms if arm != VANILLA and VANILLA in arms]


def _score_sheet(
    name: str,
    title: str,
    rows: list[Row],
    arms: Sequence[str],
    *,
    extra: Sequence[Column] = (),
    paper: bool,
    note: str,
    about: tuple[str, ...],
) -> Sheet:
    """Mean ± s.e. per task and arm, improvements over vanilla, their averages."""
    columns = [task_column(), *extra]
    columns += [_estimate(arm) for arm in arms]
    averaged = {f"{arm}_improvement_pct": arm for arm in _compared(arms)}
    if paper:
        averaged["paper_improvement_pct"] = "paper"
        about = (*about, PAPER_COLUMN)
    before = len(columns)
    columns += [_percents(heading, name) for name, heading in averaged.items()]
    foot: tuple[tuple[str, ...], ...] = ()
    if _compared(arms):
        foot = _averages(before, [[row[name] for row in rows] for name in averaged])
    return Sheet(name, title, tuple(columns), rows, foot, note=note, about=about)


def _averages(
    before: int, columns: Sequence[Sequence[float]]
) -> tuple[tuple[str, ...], ...]:
    sums = [tables.summarise(values) for values in columns]
    names: tuple[tuple[str, Callable[[tables.Summary], str]], ...] = (
        ("trimmed mean", lambda s: percent_change(s.trimmed_mean)),
        ("mean", lambda s: percent_change(s.mean)),
        ("median", lambda s: percent_change(s.median)),
        ("wins", lambda s: f"{s.wins} of {s.rows}"),
    )
    blank = ("",) * (before - 1)
    return tuple((name, *blank, *map(text, sums)) for name, text in names)


def score_sheet(
    budgets: Sequence[BudgetUse], arms: Sequence[str], *, paper: bool
) -> Sheet:
    """The paper's table, at the largest budget that all chains of a task reached."""
    clock, score = budgets[0].clock, SCORES[budgets[0].curve]
    rows = _score_rows(
        [(b.task, {arm: b.final(arm) for arm in b.chains}) for b in budgets], arms
    )
    for row, one in zip(rows, budgets, strict=True):
        row["seconds"] = one.until
    return _score_sheet(
        f"scores_{clock}",
        f"{score} at equal budgets, {clock} clock",
        rows,
        arms,
        extra=[Column("seconds", lambda r: number(r["seconds"]))],
        paper=paper,
        note="Mean over chains, ± standard error between seeds. Seconds: the largest "
        "budget that every chain of every arm reached.",
        about=(
            f"{SIGN}. Trimmed mean: without the highest and the lowest row.",
            f"{score}: {wording.failures(budgets[0].task, budgets[0].curve)}.",
            "Scores are on the split that the reward comes from. The fastest chain "
            "sets the common budget, so with few steps it is short: see also the "
            "scores at the end of each run.",
        ),
    )


def end_sheet(
    budgets: Sequence[BudgetUse], arms: Sequence[str], *, paper: bool
) -> Sheet:
    """The same when every run is over: budgets are equal as far as runs finished."""
    score = SCORES[budgets[0].curve]
    return _score_sheet(
        "scores_end",
        f"{score} at the end of each run",
        _score_rows(
            [(b.task, {arm: b.last(arm) for arm in b.chains}) for b in budgets], arms
        ),
        arms,
        paper=paper,
        note=f"Mean over chains of the {score.lower()}, ± standard error between "
        "seeds.",
        about=(
            f"{SIGN}.",
            "A step that has begun is finished, so the seconds used differ a little: "
            "the table of arms has them.",
        ),
    )


def test_sheet(experiment: Experiment, *, paper: bool) -> Sheet:
    """The private test's scores by the same rules."""
    arms = experiment.arms()
    scores = [
        (task, {arm: medals.test_score(experiment.of(task, arm)) for arm in arms})
        for task in experiment.tasks
    ]
    counts = [
        medals.count(task, experiment.of(task, arm))
        for task in experiment.tasks
        for arm in experiment.arms(task)
    ]
    scored = sum(count["scored"] for count in counts)
    scripts = sum(count["scripts"] for count in counts)
    title = "Private test: scores of the best scripts"
    if facts.trained_on_test(experiment):
        title = "Test answers, also used as the reward: scores of the best scripts"
    return _score_sheet(
        "scores_test",
        title,
        _score_rows(scores, arms),
        arms,
        paper=paper,
        note="Mean over the scripts that got a score, ± standard error between seeds: "
        f"{scored:,} of {scripts:,} scripts.",
        about=(f"{SIGN}.",),
    )


def _count(name: str) -> Column:
    return Column(name.replace("_", " "), lambda r: f"{r[name]:,}")


def medal_sheet(experiment: Experiment) -> Sheet:
    """How many scripts reached which threshold, of tasks with real data alone."""
    rows: list[Row] = []
    real = facts.real_tasks(experiment)
    for task in (task for task in experiment.tasks if task.short in real):
        limits = {
            f"{name}_threshold": getattr(task.medals, name, math.nan)
            for name in (*medals.MEDALS, "median")
        }
        for arm in experiment.arms(task):
            counts = medals.count(task, experiment.of(task, arm))
            row: Row = {"task": task.short, "better": arrow(task), "arm": arm}
            rows.append(row | counts | limits)
    columns = [task_column(), text_column("arm")]
    names = ("scripts", "scored", *medals.MEDALS, "above_median")
    return Sheet(
        "medals",
        "Private test: medals",
        (*columns, *map(_count, names)),
        rows,
        note="Scripts that reached the real leaderboard's thresholds; a gold medal is "
        "not counted as silver.",
    )
