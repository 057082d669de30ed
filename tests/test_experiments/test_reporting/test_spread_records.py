"""Seconds that buy no score, from records: recomputed from attempts.jsonl alone."""

import csv
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import report_checks as checks
import report_help as helper
from scipy import stats

from benchmarks import committed_report
from experiments.reporting import spread
from experiments.reporting.load import load

#: Measured before, by other code: search-only runs, first runs of valid scripts.
KNOWN = {
    "tabular-2022": 2.2, "whale": 1.9, "leaf-classif": 3.6, "spooky-author": 2.6,
    "nyc-taxi": 5.8, "denoising-docs": 3.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    committed_report.unpack(folder)
    return folder


def ratio_of_bins(value, seconds, bins=5):
    """Median over bins of p90/p10; bins by the rank of the first of equals."""
    place = bins * (stats.rankdata(value, "min") - 1) // len(value)
    inside = [seconds[place == k] for k in range(bins)]
    ratios = [np.percentile(s, 90) / np.percentile(s, 10) for s in inside if len(s) > 1]
    return np.median(ratios)


def first_runs(rows):
    """(value, seconds) of the first attempt of each valid script, seeds in order."""
    seen, out = set(), []
    for row in rows:
        if row["valid"] and not row.get("repeat_of"):
            if row["script_sha256"] not in seen:
                out.append((row["value"], row["delta_s"]))
            seen.add(row["script_sha256"])
    return np.array(out, float).T


def wasted_of(rows):
    """(wasted, all) seconds of a run; parents are followed to the base prompt."""
    by_id = {row["run_id"]: row for row in rows}
    useful, best = set(), -math.inf
    for row in rows:
        if row["valid"] and row["value"] > best:
            best, at = row["value"], row
            while at is not None:
                useful.add(at["run_id"])
                at = by_id.get(at["parent"])
    total = sum(row["delta_s"] for row in rows)
    return total - sum(by_id[one]["delta_s"] for one in useful), total


@pytest.mark.parametrize("task", KNOWN)
def test_the_committed_records_give_what_is_known(committed, task):
    folders = sorted((committed / task / task / "search-only").iterdir())
    found = spread.spreads(load(folders))
    assert [(one.task, one.arm) for one in found] == [(task, "search-only")]
    measured = found[0].measured
    assert measured.spread == pytest.approx(KNOWN[task], abs=0.3)
    rows, wasted = [], []
    for folder in folders:
        text = (folder / "attempts.jsonl").read_text("utf-8")
        last = {}
        for row in map(json.loads, text.splitlines()):
            last[row["step"], row["chain"]] = row
        mine = [last[key] for key in sorted(last)]
        mine = [row for row in mine if row["delta_s"] is not None]
        rows += mine
        wasted.append(wasted_of(mine))
    value, seconds = first_runs(rows)
    assert measured.attempts == len(value)
    assert measured.spread == pytest.approx(ratio_of_bins(value, seconds), rel=1e-9)
    lost, total = map(sum, zip(*wasted, strict=True))
    assert found[0].wasted == pytest.approx(lost / total)
    assert found[0].attempts == len(rows)


def records_of(frames, task, arm):
    """Rows of all seeds as dictionaries, in order; and each seed's."""
    seeds = []
    for seed in checks.SEEDS:
        frame = frames[task, arm, seed]
        frame = frame[frame.status != "infrastructure"]
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        seeds.append(rows)
    return [row for rows in seeds for row in rows], seeds


def test_every_number_of_the_reports_line(report, frames):
    with (report.page.parent / "spread.csv").open(encoding="utf-8") as file:
        written = {row["task"]: row for row in csv.DictReader(file)}
    assert set(written) == set(checks.TASKS)
    said = []
    for task in checks.TASKS:
        rows, seeds = records_of(frames, task, "search-only")
        value, seconds = first_runs(rows)
        row = written[task]
        assert row["arm"] == "search-only"
        assert (int(row["valid"]), int(row["attempts"])) == (len(value), len(rows))
        found = ratio_of_bins(value, seconds)
        assert float(row["W"]) == pytest.approx(found, rel=1e-9)
        rank = stats.spearmanr(value, np.log(seconds)).statistic
        assert float(row["rank_correlation"]) == pytest.approx(rank, abs=1e-9)
        tails = np.percentile(seconds, 95) / np.percentile(seconds, 5)
        assert float(row["p95_p5"]) == pytest.approx(tails, rel=1e-9)
        alone = [sum(pair) for pair in zip(*map(wasted_of, seeds), strict=True)]
        assert float(row["wasted_share"]) == pytest.approx(alone[0] / alone[1])
        # Another bootstrap of its own: the ends differ by chance alone.
        rng = np.random.default_rng(99)
        picked = rng.integers(len(value), size=(800, len(value)))
        draws = [ratio_of_bins(value[i], seconds[i]) for i in picked]
        ends = float(row["W_low"]), float(row["W_high"])
        assert ends == pytest.approx(np.percentile(draws, [2.5, 97.5]), rel=0.08)
        said.append(f"{found:.2g} [{ends[0]:.2g}, {ends[1]:.2g}] on {task}")
    begin = "Seconds that buy no score (search-only): W = "
    assert report.spread.startswith(begin)
    shown = report.spread.removeprefix(begin).partition(". A simulation")[0]
    assert shown.replace(".0 ", " ") == ", ".join(said).replace(".0 ", " ")
    assert len(report.spread) < 300  # a phone
    assert report.spread in report.page.read_text("utf-8")


def test_without_an_arm_that_does_not_learn_the_first_steps_count(tmp_path):
    run = helper.make_run(
        tmp_path / "run", tasks=("whale",), arms=("rpg", "vanilla"), seeds=(0, 1),
        steps=2, chains=8, final=False, lost=0.0,
    )  # fmt: skip
    found = spread.reported(load([run]))
    assert [(one.arm, one.attempts) for one in found] == [("first step", 2 * 2 * 8)]
    assert found[0].state == spread.FEW
    assert spread.spreads(load([run]))[0].attempts == 32
    arms = spread.spreads(load([run]), ["vanilla", "rpg"])
    assert [(one.arm, one.attempts) for one in arms] == [("vanilla", 32), ("rpg", 32)]


def test_which_untrained_arm_a_report_takes():
    def run(arm, gradient):
        return SimpleNamespace(config={"arm": {"name": arm, "gradient": gradient}})

    assert spread.has_gradient(SimpleNamespace(config={"arm": "rpg"}))
    assert spread.has_gradient(run("rpg", True))
    assert not spread.has_gradient(run("search-only", False))
