"""Every number of a report against pandas and NumPy, from the raw attempts.jsonl."""

import csv
import json
import math

import numpy as np
import pandas as pd
import pytest
import report_help as helper

from experiments.reporting import headline, learning, medals, numbers, sheets
from experiments.reporting.budget import read_budget
from experiments.reporting.build import build
from experiments.reporting.load import load
from rpg_tasks import get_task

TASKS = ("tabular-2022", "spooky-author")
ARMS = ("rpg", "vanilla", "search-only")
SEEDS = (0, 1, 2)
BASE = {"tabular-2022": 0.5, "spooky-author": 1.0986}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "run"
    helper.make_run(folder, tasks=TASKS, arms=ARMS, seeds=SEEDS, steps=7, lost=0.08)
    with helper.undrawn():
        return build(folder)


@pytest.fixture(scope="module")
def frames(report):
    root = report.experiment.roots[0]
    return {
        (task, arm, seed): helper.attempts_frame(root / task / arm / f"seed-{seed}")
        for task in TASKS
        for arm in ARMS
        for seed in SEEDS
    }


def rows(report, name):
    """A CSV file of the report by (task, arm) or by task."""
    with (report.page.parent / f"{name}.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    return {(r["task"], r["arm"]) if "arm" in r else r["task"]: r for r in found}


def close(text, value):
    assert (
        math.isnan(value)
        if text == ""
        else float(text) == pytest.approx(value, rel=1e-9, abs=1e-12)
    )


def three(values):
    """Mean and standard error of the seeds' values."""
    values = np.array(values, float)
    return values.mean(), values.std(ddof=1) / math.sqrt(len(values))


def test_the_stand_in_runs_have_what_can_happen(frames):
    everything = pd.concat(frames.values())
    assert {"valid", "invalid", "failed", "infrastructure"} == set(everything.status)
    assert everything.parent.notna().any()


def test_arms(report, frames):
    found = rows(report, "arms")
    for task in TASKS:
        for arm in ARMS:
            parts = [frames[task, arm, seed] for seed in SEEDS]
            known = [f[f.status != "infrastructure"] for f in parts]
            row = found[task, arm]
            assert int(row["attempts"]) == sum(map(len, parts))
            for name, values in {
                "valid_share": [k.valid.mean() for k in known],
                "score_valid": [k[k.valid].score.mean() for k in known],
                "seconds_mean": [k.delta_s.mean() for k in known],
                "seconds_median": [k.delta_s.median() for k in known],
                "seconds_p95": [k.delta_s.quantile(0.95) for k in known],
                "execution_mean": [k.execution_s.mean() for k in known],
                "rate": [k.value.sum() / k.delta_s.sum() for k in known],
                "rate_last_third": [
                    k[k.step >= 5].value.sum() / k[k.step >= 5].delta_s.sum()
                    for k in known
                ],
                "share_failed": [(f.status == "failed").mean() for f in parts],
            }.items():
                mean, se = three(values)
                close(row[name], mean)
                close(row[f"{name}_se"], se)
            whole = pd.concat(known)
            close(row["pooled_rate"], whole.value.sum() / whole.delta_s.sum())
            assert row["interval_over"] == "seeds"
            # Of three seeds, a percentile bootstrap is the range of their rates.
            rates = [k.value.sum() / k.delta_s.sum() for k in known]
            close(row["rate_low"], min(rates))
            close(row["rate_high"], max(rates))


def test_contests(report, frames):
    found = rows(report, "contests")
    for task in TASKS:
        rates = {}
        for arm in ("rpg", "vanilla"):
            known = [frames[task, arm, s].dropna(subset="delta_s") for s in SEEDS]
            whole = pd.concat(known)
            rates[arm] = whole.value.sum() / whole.delta_s.sum()
        row = found[task]
        assert (row["first"], row["second"]) == ("rpg", "vanilla")
        close(row["first_rate"], rates["rpg"])
        close(row["second_rate"], rates["vanilla"])
        close(row["difference"], rates["rpg"] - rates["vanilla"])
        close(row["gain_pct"], 100 * (rates["rpg"] / rates["vanilla"] - 1))
        low, high = float(row["difference_low"]), float(row["difference_high"])
        assert low <= rates["rpg"] - rates["vanilla"] <= high
        assert (row["settled"] == "True") == (low > 0 or high < 0)
    settled = [row["settled"] == "True" for row in found.values()]
    assert ("hint, no proof" in report.headline) == any(settled)
    for said, is_settled in zip(report.contests, settled, strict=True):
        assert ("leaves out 0, but 3 seeds" in said) == is_settled
        assert ("includes 0" in said) != is_settled


def best_by_time(frame, metrics, task, clock, time, baseline):
    """Mean over chains of the best score after so many seconds, by the definition."""
    better = max if get_task(task).higher_is_better else min
    values = []
    for _, part in frame[frame.status != "infrastructure"].groupby("chain"):
        seconds = part.execution_s.to_numpy().copy()
        if clock == "total":
            update = part.step.map(lambda s: metrics[s]["seconds"]["update"] / 4)
            seconds += (part.generation_s + part.grading_s + update).to_numpy()
        done = np.cumsum(np.maximum(seconds, 0.1)) <= time
        scores = part.score[done & part.valid.to_numpy()]
        values.append(better(scores) if len(scores) else baseline)
    return np.mean(values), len(values)


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
    assert f"the {curve} score ±" in sheet.note
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
    sheet = sheets.end_sheet(budgets, ARMS, paper=True)
    paper = [get_task(task).paper.improv_pct for task in TASKS]
    foot = {cells[0]: cells[-1] for cells in sheet.foot}
    assert float(foot["mean"].replace("−", "-")) == pytest.approx(
        np.mean(paper), abs=0.0501
    )
    assert foot["wins"] == f"{sum(value > 0 for value in paper)} of 2"
    assert sheets.PAPER_COLUMN in sheet.about


def test_the_share_of_valid_scripts_is_of_those_known(report, frames):
    whole = pd.concat(frames.values())
    known = whole[whole.status != "infrastructure"]
    (said,) = [v for k, v in headline.facts(report.experiment) if k == "attempts"]
    assert f"{100 * known.valid.mean():.1f}% valid" in said
    assert f"{len(whole) - len(known)} lost by the machinery" in said


def relative(frame, price):
    """reward - price * charged; failures at least the slowest valid of their step."""
    frame = frame[frame.status != "infrastructure"].copy()
    slowest = frame[frame.valid].groupby("step").delta_s.max()
    floor = frame.step.map(slowest).fillna(0.0)
    charged = frame.delta_s.where(frame.valid, np.maximum(frame.delta_s, floor))
    return frame.assign(relative=frame.reward - price * charged)


def test_learning(report, frames):
    found = rows(report, "learning")
    root = report.experiment.roots[0]
    for task in TASKS:
        last = [
            json.loads(
                (root / task / "rpg" / f"seed-{s}" / "metrics.jsonl")
                .read_text()
                .splitlines()[-1]
            )["rho_next"]
            for s in SEEDS
        ]
        price = np.mean(last)
        changes = {}
        for arm in ARMS:
            row = found[task, arm]
            close(row["price"], price)
            first, final = [], []
            for seed in SEEDS:
                frame = relative(frames[task, arm, seed], price)
                first.append(frame[frame.step < 2].relative.mean())
                final.append(frame[frame.step >= 5].relative.mean())
            changes[arm] = np.array(final) - np.array(first)
            close(row["first_third"], np.mean(first))
            close(row["last_third"], np.mean(final))
            close(row["change"], changes[arm].mean())
            close(row["change_low"], changes[arm].min())
            close(row["change_high"], changes[arm].max())
            assert row["units"] == "3"
        for arm in ("rpg", "vanilla"):
            beyond = changes[arm].mean() - changes["search-only"].mean()
            close(found[task, arm]["beyond_search"], beyond)
            assert float(found[task, arm]["beyond_search_low"]) < beyond
            assert beyond < float(found[task, arm]["beyond_search_high"])
        assert found[task, "search-only"]["beyond_search"] == ""


def test_lines_over_steps(report, frames):
    experiment = report.experiment
    task = get_task("spooky-author")
    cells = experiment.of(task, "rpg")
    parts = [relative(frames["spooky-author", "rpg", s], 0.05) for s in SEEDS]
    for column, of in {
        "relative": lambda f: f.relative,
        "valid": lambda f: f.valid.astype(float),
        "seconds": lambda f: f.delta_s,
    }.items():
        line = learning.by_step(cells, column, 0.05)
        table = np.array([of(f).groupby(f.step).mean() for f in parts])
        np.testing.assert_allclose(line.mean, table.mean(0), rtol=1e-9)
        np.testing.assert_allclose(line.se, table.std(0, ddof=1) / 3**0.5, rtol=1e-9)
        np.testing.assert_array_equal(line.time, np.arange(1, 8))
        smooth = learning.by_step(cells, column, 0.05, window=2)
        pair = [of(f)[f.step.isin([3, 4])].mean() for f in parts]
        assert smooth.mean[4] == pytest.approx(np.mean(pair))
        assert smooth.mean[0] == pytest.approx(line.mean[0])


def test_private_test_and_medals(report):
    root = report.experiment.roots[0]
    scores, counts = rows(report, "scores_test"), rows(report, "medals")
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
    sheet = next(s for s in report.sheets if s.name == "medals")
    assert "means nothing" in sheet.note


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


def test_intervals_of_many_units_are_about_right():
    """Against the normal theory of means and of ratios of sums."""
    rng = np.random.default_rng(3)
    values = rng.normal(2.0, 1.0, 400)
    found = numbers.mean_interval(values)
    half = 1.96 * values.std(ddof=1) / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.2 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.2 * half)
    seconds = rng.uniform(1, 3, 400)
    reward = 0.5 * seconds + rng.normal(0, 0.3, 400)
    rate = numbers.rate_interval(numbers.Units(reward, seconds, "chains"))
    expected = reward.sum() / seconds.sum()
    error = (reward - expected * seconds).std(ddof=1) / seconds.mean() / 20
    assert rate.value == pytest.approx(expected)
    assert rate.high - rate.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    one = numbers.Units(reward, seconds, "chains")
    other = numbers.Units(reward[:200] + 1, seconds[:200], "chains")
    apart = numbers.rate_difference(other, one)
    assert apart.low > 0
    assert numbers.rate_difference(one, one).value == 0
    alone = numbers.mean_interval(np.array([1.5]))
    assert alone.value == 1.5
    assert math.isnan(alone.low)
    assert math.isnan(numbers.mean_interval(np.array([])).value)


def test_few_seeds_fall_back_on_chains(report, tmp_path):
    root = report.experiment.roots[0]
    cells = [root / "tabular-2022" / a / f"seed-{s}" for a in ARMS[:2] for s in (0, 1)]
    experiment = load(cells)
    assert numbers.unit_kind(experiment, experiment.tasks[0]) == "chains"
    units = numbers.units(experiment.of(experiment.tasks[0], "rpg"), "chains")
    assert len(units.seconds) == 8
    checks = learning.checks(experiment, experiment.tasks[0])
    assert {c.kind for c in checks} == {"chains"}
    assert all(c.beyond_search is None for c in checks)
    assert "wider" in numbers.interval_note([("chains", 8)])
    assert "wider" not in numbers.interval_note([("seeds", 9)])
    mixed = numbers.interval_note([("chains", 8), ("seeds", 3)])
    assert "3 seeds" in mixed
    assert "in tasks where" in mixed
