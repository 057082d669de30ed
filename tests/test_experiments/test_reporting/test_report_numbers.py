"""Rates and learning checks of a report against pandas, from raw attempts.jsonl."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from report_checks import ARMS, SEEDS, TASKS, close, relative, rows, three

from experiments.reporting import facts, intervals, learning, numbers
from experiments.reporting.contests import contests
from experiments.reporting.headline import headline
from experiments.reporting.load import load
from rpg_tasks import get_task


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
        close(row["difference_pct"], 100 * (rates["rpg"] / rates["vanilla"] - 1))
        low, high = float(row["difference_low"]), float(row["difference_high"])
        assert low <= rates["rpg"] - rates["vanilla"] <= high
        assert (row["excludes_0"] == "True") == (low > 0 or high < 0)
    # Seven steps a run are too few for a verdict.
    assert all(row["no_verdict"] == "fewer than 10 updates" for row in found.values())
    assert "no verdict" in report.rates
    for said in report.contests:
        assert "no verdict, because" in said
        assert "excludes 0" not in said
    ungated = [dataclasses.replace(c, gate=None) for c in contests(report.experiment)]
    clear = [c.excludes_0 for c in ungated]
    text = headline(report.experiment, ungated)
    assert ("hint, not proof" in text) == any(clear)
    for contest in ungated:
        said = contest.sentence()
        assert ("excludes 0; with 3 seeds" in said) == contest.excludes_0
        assert ("includes 0" in said) != contest.excludes_0


def test_the_share_of_valid_scripts_is_of_those_known(report, frames):
    whole = pd.concat(frames.values())
    known = whole[whole.status != "infrastructure"]
    (said,) = [v for k, v in facts.facts(report.experiment) if k == "attempts"]
    assert f"{100 * known.valid.mean():.1f}% valid" in said
    assert f"{len(whole) - len(known)} lost by the machinery" in said


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
    runs = experiment.of(task, "rpg")
    parts = [relative(frames["spooky-author", "rpg", s], 0.05) for s in SEEDS]
    for column, of in {
        "relative": lambda f: f.relative,
        "valid": lambda f: f.valid.astype(float),
        "seconds": lambda f: f.delta_s,
    }.items():
        line = learning.by_step(runs, column, 0.05)
        table = np.array([of(f).groupby(f.step).mean() for f in parts])
        np.testing.assert_allclose(line.mean, table.mean(0), rtol=1e-9)
        np.testing.assert_allclose(line.se, table.std(0, ddof=1) / 3**0.5, rtol=1e-9)
        np.testing.assert_array_equal(line.time, np.arange(1, 8))
        smooth = learning.by_step(runs, column, 0.05, window=2)
        pair = [of(f)[f.step.isin([3, 4])].mean() for f in parts]
        assert smooth.mean[4] == pytest.approx(np.mean(pair))
        assert smooth.mean[0] == pytest.approx(line.mean[0])


def test_few_seeds_fall_back_on_chains(report):
    root = report.experiment.roots[0]
    runs = [root / "tabular-2022" / a / f"seed-{s}" for a in ARMS[:2] for s in (0, 1)]
    experiment = load(runs)
    assert numbers.unit_kind(experiment, experiment.tasks[0]) == "chains"
    units = numbers.units(experiment.of(experiment.tasks[0], "rpg"), "chains")
    assert len(units.seconds) == 8
    checks = learning.checks(experiment, experiment.tasks[0])
    assert {c.kind for c in checks} == {"chains"}
    assert all(c.beyond_search is None for c in checks)
    assert "over chains, because" in intervals.interval_note([("chains", 8)])
