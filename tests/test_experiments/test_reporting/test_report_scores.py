"""Scores of a report (equal budgets, end, private test) against plain sums."""

import json

import numpy as np
import pandas as pd
import pytest
import report_help as helper
from report_checks import ARMS, BASE, SEEDS, TASKS, best_by_time, close, rows, three

from experiments.reporting import facts, medals, score_sheets
from experiments.reporting.budget import read_budget
from experiments.reporting.build import build
from rpg_tasks import get_task


@pytest.mark.parametrize("clock", ["execution", "total"])
def test_scores_at_equal_budgets(report, frames, clock):
    found = rows(report, f"scores_{clock}")
    root = report.experiment.roots[0]
    gains = {arm: [] for arm in ARMS[::2]}
    for task in TASKS:
        totals, metrics = [], {}
        for (name, arm, seed), frame in frames.items():
            if name != task:
                continue
            path = root / task / arm / f"seed-{seed}" / "metrics.jsonl"
            each = [json.loads(line) for line in path.read_text().splitlines()]
            metrics[arm, seed] = each
            known = frame[frame.status != "infrastructure"]
            seconds = known.execution_s.copy()
            if clock == "total":
                update = known.step.map(lambda s, m=each: m[s]["seconds"]["update"] / 4)
                seconds += known.generation_s + known.grading_s + update
            totals += list(seconds.clip(lower=0.1).groupby(known.chain).sum())
        until = min(totals)
        close(found[task]["seconds"], until)
        means = {}
        for arm in ARMS:
            values = [
                best_by_time(
                    frames[task, arm, seed],
                    metrics[arm, seed],
                    task,
                    clock,
                    until * (1 + 1e-12),
                    BASE[task],
                )[0]
                for seed in SEEDS
            ]
            means[arm], se = three(values)
            close(found[task][f"{arm}_mean"], means[arm])
            close(found[task][f"{arm}_se"], se)
        sign = 1 if get_task(task).higher_is_better else -1
        for arm, gain in gains.items():
            change = means[arm] - means["vanilla"]
            gain.append(100 * sign * change / abs(means["vanilla"]))
            close(found[task][f"{arm}_improvement_pct"], gain[-1])
    sheet = next(s for s in report.sheets if s.name == f"scores_{clock}")
    foot = {cells[0]: cells[-2:] for cells in sheet.foot}
    assert foot["trimmed mean"] == ("–", "–")  # two rows leave none
    for at, gain in enumerate(gains.values()):
        text = foot["mean"][at].replace("−", "-").replace(",", "")
        assert float(text) == pytest.approx(np.mean(gain), abs=0.0501)
        assert foot["wins"][at] == f"{sum(g > 0 for g in gain)} of 2"


def test_scores_at_the_end(report, frames):
    found = rows(report, "scores_end")
    for task in TASKS:
        for arm in ARMS:
            values = [
                best_by_time(frames[task, arm, s], None, task, "x", 1e9, BASE[task])[0]
                for s in SEEDS
            ]
            mean, se = three(values)
            close(found[task][f"{arm}_mean"], mean)
            close(found[task][f"{arm}_se"], se)


@pytest.mark.parametrize(
    "curve", ["last", pytest.param("mean", marks=pytest.mark.slow)]
)
def test_tables_say_which_score_they_show(report, frames, tmp_path, curve):
    """Other curves give other numbers, under other titles."""
    with helper.undrawn():
        other = build(report.experiment.roots[0], tmp_path / "out", curve=curve)
    sheet = next(s for s in other.sheets if s.name == "scores_end")
    for one in (s for s in other.sheets if s.name.startswith("scores_")):
        if one.name != "scores_test":
            assert one.title.startswith(f"{curve.capitalize()} score at")
    assert f"the {curve} score, ±" in sheet.note
    found = rows(other, "scores_end")
    for task in TASKS:
        means = []
        for seed in SEEDS:
            frame = frames[task, "rpg", seed]
            known = frame[frame.status != "infrastructure"]
            score = known.score.fillna(BASE[task])
            chains = score.groupby(known.chain)
            means.append((chains.last() if curve == "last" else chains.mean()).mean())
        close(found[task]["rpg_mean"], three(means)[0])
        best = rows(report, "scores_end")[task]["rpg_mean"]
        assert found[task]["rpg_mean"] != best


def test_the_papers_averages_are_of_the_tasks_shown(report):
    """Of two rows of the paper's table, not of all 22 under a table of two."""
    budgets = [read_budget(report.experiment, get_task(t), "total") for t in TASKS]
    sheet = score_sheets.end_sheet(budgets, ARMS, paper=True)
    paper = [get_task(task).paper.improv_pct for task in TASKS]
    foot = {cells[0]: cells[-1] for cells in sheet.foot}
    assert float(foot["mean"].replace("−", "-")) == pytest.approx(
        np.mean(paper), abs=0.0501
    )
    assert foot["wins"] == f"{sum(value > 0 for value in paper)} of 2"
    assert score_sheets.PAPER_COLUMN in sheet.about


def test_private_test_and_medals(report):
    root = report.experiment.roots[0]
    scores = rows(report, "scores_test")
    # Synthetic data win none; what is counted is the real competitions' tasks.
    assert not (report.page.parent / "medals.csv").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "real_tasks", lambda experiment: list(TASKS))
        sheet = score_sheets.medal_sheet(report.experiment)
    counts = {(row["task"], row["arm"]): row for row in sheet.rows}
    for short in TASKS:
        task = get_task(short)
        sign = 1 if task.higher_is_better else -1
        for arm in ARMS:
            each, scripts = [], 0
            for seed in SEEDS:
                path = root / short / arm / f"seed-{seed}" / "final.jsonl"
                lines = [json.loads(line) for line in path.read_text().splitlines()]
                scripts += len(lines)
                each.append([r["score"] for r in lines if r["score"] is not None])
            mean, se = three([np.mean(v) for v in each])
            close(scores[short][f"{arm}_mean"], mean)
            close(scores[short][f"{arm}_se"], se)
            flat = [round(s, 5) * sign for v in each for s in v]
            row, m = counts[short, arm], task.medals
            assert int(row["scripts"]) == scripts > len(flat) == int(row["scored"])
            gold = sum(s >= m.gold * sign for s in flat)
            silver = sum(s >= m.silver * sign for s in flat) - gold
            bronze = sum(s >= m.bronze * sign for s in flat) - gold - silver
            median = sum(s >= m.median * sign for s in flat)
            assert [int(row[n]) for n in medals.MEDALS] == [gold, silver, bronze]
            assert int(row["above_median"]) == median
    assert sum(int(row["gold"]) for row in counts.values()) > 0
    assert not score_sheets.medal_sheet(report.experiment).rows


def test_synthetic_data_have_no_medals_anywhere(report):
    """Neither in the page nor in any table."""
    for path in report.page.parent.iterdir():
        if path.suffix in (".html", ".md", ".csv"):
            text = path.read_text(encoding="utf-8").lower()
            for word in ("medal", "gold", "silver", "bronze"):
                assert word not in text, (path.name, word)


def test_attempts_csv_holds_every_attempt(report, frames):
    table = pd.read_csv(report.page.parent / "attempts.csv")
    whole = pd.concat(frames.values())
    assert len(table) == len(whole)
    merged = table.merge(whole, on="run_id", suffixes=("", "_raw"))
    assert len(merged) == len(whole)
    for name in ("score", "reward", "delta_s", "execution_s", "step", "chain"):
        np.testing.assert_array_equal(merged[name], merged[f"{name}_raw"])


def test_curves_csv_is_the_curve_at_its_points(report, frames):
    table = pd.read_csv(report.page.parent / "curves.csv")
    part = table[
        (table.task == "tabular-2022")
        & (table.arm == "vanilla")
        & (table.clock == "execution")
    ]
    for _, row in part.iloc[:: max(len(part) // 15, 1)].iterrows():
        values = [
            best_by_time(
                frames["tabular-2022", "vanilla", s], None, "tabular-2022",
                "execution", row.seconds * (1 + 1e-12), 0.5,
            )[0]
            for s in SEEDS
        ]  # fmt: skip
        assert row["mean"] == pytest.approx(np.mean(values), abs=1e-9)
        assert row.se == pytest.approx(three(values)[1], abs=1e-9)
