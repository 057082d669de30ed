"""The first screen's numbers, recomputed from the ledgers by their definitions."""

import dataclasses
import json

import numpy as np
import pytest
from report_checks import ARMS, BASE, SEEDS, TASKS, close, rows

from experiments.reporting import best_figure, contests, style, verdict
from experiments.reporting.best import best_scores
from experiments.reporting.intervals import Interval
from experiments.reporting.load import load
from rpg_tasks import get_task


def run_best(root, frames, task, arm, seed, time):
    """The best valid score of all steps that ended by then, by the definition."""
    path = root / task / arm / f"seed-{seed}" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    done = [m["step"] for m in lines if m["used"]["total"] <= time]
    frame = frames[task, arm, seed]
    scores = frame[frame.step.isin(done) & frame.valid].score
    better = max if get_task(task).higher_is_better else min
    return better(scores) if len(scores) else BASE[task]


def ends(root, task, arms):
    out = []
    for arm in arms:
        for seed in SEEDS:
            path = root / task / arm / f"seed-{seed}" / "metrics.jsonl"
            out.append(json.loads(path.read_text().splitlines()[-1])["used"]["total"])
    return out


def test_best_scores(report, frames):
    found, root = rows(report, "best"), report.experiment.roots[0]
    for task in TASKS:
        time = min(ends(root, task, ARMS))
        for arm in ARMS:
            row = found[task, arm]
            close(row["seconds"], time)
            seeds = [run_best(root, frames, task, arm, s, time) for s in SEEDS]
            close(row["best"], np.mean(seeds))
            # Of three seeds, a percentile bootstrap is their range.
            close(row["best_low"], min(seeds))
            close(row["best_high"], max(seeds))
            last = [run_best(root, frames, task, arm, s, 1e9) for s in SEEDS]
            close(row["at_the_end"], np.mean(last))
            assert row["least_updates"] == "7"


def test_the_lead_is_the_difference_and_is_said(report, frames):
    root = report.experiment.roots[0]
    judged = verdict.verdicts(report.experiment, report.best)
    assert [v.sentence() for v in judged] == report.verdicts
    assert report.headline == verdict.headline(judged, report.best)
    assert "no verdict on any of the 2 tasks" in report.headline
    for v in judged:
        time = min(ends(root, v.name, ("rpg", "vanilla")))
        assert v.time == pytest.approx(time)
        a, b = (
            np.mean([run_best(root, frames, v.name, arm, s, time) for s in SEEDS])
            for arm in ("rpg", "vanilla")
        )
        sign = 1 if get_task(v.name).higher_is_better else -1
        assert v.lead.value == pytest.approx(sign * (a - b))
        assert v.lead.low <= v.lead.value <= v.lead.high
        assert "no verdict, because" in v.sentence()
        free = dataclasses.replace(v, gate=None)
        said = free.sentence()
        assert f"{free.ahead} is ahead of" in said
        assert "settled: 95%" in said
        assert ("not settled" in said) != free.settled
        assert "over 3 seeds" in said


def test_one_seed_is_redrawn_from_its_chains(report, frames):
    root = report.experiment.roots[0]
    experiment = load([root / "tabular-2022" / arm / "seed-0" for arm in ARMS[:2]])
    best = best_scores(experiment, experiment.tasks[0])
    assert best.kind == "chains"
    frame = frames["tabular-2022", "rpg", 0]
    chains = np.sort(frame[frame.valid].groupby("chain").score.max())
    line = best.line("rpg", np.array([1e9]))
    assert line.value[0] == line.high[0] == pytest.approx(chains[-1])
    assert chains[0] <= line.low[0] <= chains[-1]
    # However clear the chains of a run are, they share parents: nothing is settled.
    (found,) = verdict.verdicts(experiment, [best])
    clear = dataclasses.replace(found, gate=None, lead=Interval(0.2, 0.1, 0.3))
    assert not clear.settled
    assert "not settled: too few seeds" in clear.sentence()
    assert dataclasses.replace(clear, best=report.best[0]).settled
    (contest,) = contests.contests(experiment)
    rates = dataclasses.replace(
        contest, gate=None, difference=Interval(0.2, 0.1, 0.3), kind="chains"
    )
    assert not rates.settled
    assert "so few seeds settle nothing" in rates.sentence()
    assert dataclasses.replace(rates, kind="seeds").settled


def test_no_line_is_cut_short(report):
    """Every arm goes on to the end of the common axis, dotted after its end."""
    (first, _) = report.best
    arm = first.runs["rpg"]
    short = [one._replace(time=one.time / 2) for one in arm]
    best = dataclasses.replace(first, runs=first.runs | {"rpg": short})
    with style.styled():
        (axis,) = style.draw([best_figure.best_panel(best)]).axes
    named = {line.get_label(): line for line in axis.get_lines()}
    assert named["rpg"].get_xdata()[-1] <= best.until(["rpg"]) < best.end
    ends = [max(line.get_xdata()) for line in axis.get_lines() if len(line.get_xdata())]
    assert ends.count(best.end) >= len(best.runs)
    legend = [text.get_text() for text in axis.get_legend().get_texts()]
    assert "dotted: run ended,\nlast score kept" in legend
