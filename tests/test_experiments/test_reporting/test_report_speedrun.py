"""A speedrun's report: through the real build, and its arithmetic."""

import csv
import dataclasses
import json
import math

import pytest
import speedrun_run_help as helper

from experiments.reporting.build import build
from experiments.reporting.load import load
from experiments.reporting.noise import Noise
from experiments.reporting.speedruns import (
    CONFIRMED,
    NOT_CONFIRMED,
    UNTESTED,
    ArmResult,
    margin,
    results,
)
from rpg_tasks.speedrun import yardsticks

NOISE = Noise((12.0, 12.2, 12.4), (2.27, 2.28, 2.29), 0.4 / 12.2)


def arm(name="rpg", **changes):
    made = ArmResult(
        arm=name, runs=5, attempts=200, crossed=100, best=6.0, new_bests=3.0, tested=5,
        confirmed=5, seeds=(15, 15), seconds=7.0, loss=2.2, final_loss=2.21,
        losses=(2.2,) * 15, each=(7.0,) * 5, steps=40,
        cpu_models=frozenset({"AMD EPYC"}),
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def slower(**changes):
    given = {"seconds": 13.0, "each": (13.0,) * 5, "loss": 2.25} | changes
    return arm("vanilla", **given)


@pytest.fixture
def built(tmp_path, monkeypatch):
    one = helper.SpeedrunExperiment(
        tmp_path / "out", tmp_path / "cache", monkeypatch, steps=4
    )
    code, text = one.launch()
    assert code == 0, text
    return one, build(one.out)


def test_the_real_build_says_seconds_to_the_target(built):
    one, report = built
    assert report.headline.startswith("tiny-gpt: seconds to 2.3 nats a token: rpg ")
    assert "baseline 15.0 s" in report.headline
    assert "A demonstration: a result needs 5 seeds of 40 steps" in report.headline
    names = [sheet.name for sheet in report.sheets]
    assert names[:3] == ["speedrun", "margins", "best"]
    assert not {"scores_test", "medals"} & set(names)
    page = report.page.read_text()
    assert "<h1>Best seconds to the target against time</h1>" in page
    assert "sample submission" not in page
    assert "CPU seconds to a validation loss of 2.30 nats" in page
    assert "Noise floor: the baseline with 3 fresh seeds takes 15.0 to 15.0" in page
    assert "missed" in page
    with (report.page.parent / "speedrun.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == ["baseline", "rpg", "vanilla"]
    for row in rows[1:]:
        final = json.loads((one.run(row["arm"]) / "final.jsonl").read_text())
        assert row["verdict"] == final["verdict"]
        if final["verdict"] == "confirmed":
            assert float(row["fresh_s"]) == pytest.approx(final["score"])
    for name in ("best.png", "rates.png", "budget-tiny-gpt.png", "steps-tiny-gpt.png"):
        assert (report.page.parent / name).stat().st_size > 5000


def test_one_fresh_seed_that_misses_is_not_confirmed(built):
    one, _ = built
    path = one.run("vanilla") / "final.jsonl"
    record = json.loads(path.read_text())
    record["trials"][1] |= {"loss": 2.4, "reason": "loss 2.4000, the target is 2.3"}
    record |= {"status": "invalid", "valid": False, "score": None}
    path.write_text(json.dumps(record) + "\n")
    (found,) = results(load([one.out]))
    vanilla = found.arms[1]
    assert vanilla.verdict == NOT_CONFIRMED
    assert math.isnan(vanilla.seconds)
    assert found.margins[0].reason == "no confirmed script of vanilla"
    path.unlink()
    (found,) = results(load([one.out]))
    assert found.arms[1].verdict == UNTESTED


def test_both_margins():
    found = margin(arm(), slower(), 2.3, NOISE)
    assert found.time.value == pytest.approx(6 / 7)
    assert found.loss == pytest.approx(0.1 / 0.05 - 1)
    assert found.within_noise is False
    near = margin(arm(), slower(seconds=7.1, each=(7.1,) * 5), 2.3, NOISE)
    assert near.within_noise is True
    assert margin(arm(), slower(), 2.3, None).within_noise is None


def test_seconds_of_two_machines_are_never_compared():
    other = slower(cpu_models=frozenset({"Intel Xeon"}))
    found = margin(arm(), other, 2.3, NOISE)
    assert math.isnan(found.time.value)
    assert "AMD EPYC and Intel Xeon" in found.reason
    mixed = arm(cpu_models=frozenset({"AMD EPYC", "Intel Xeon"}))
    assert margin(mixed, slower(), 2.3, NOISE).reason


def test_an_arm_is_confirmed_where_every_run_is():
    assert arm().verdict == CONFIRMED
    assert arm(confirmed=4).verdict == NOT_CONFIRMED
    assert arm(tested=0, confirmed=0).verdict == UNTESTED


def test_copies_of_one_noisy_script_are_no_new_best():
    import numpy as np

    noisy = (10 * np.random.default_rng(0).lognormal(0, 0.05, 50)).tolist()
    assert yardsticks.new_bests(["a"] * 50, noisy, 0.02) == []
    assert yardsticks.new_bests(["a"] * 50, noisy, 0.0) == []
    scripts, seconds = ["a", "a", "b", "c", "a"], [10.0, 8.0, 8.8, 8.0, 1.0]
    assert yardsticks.new_bests(scripts, seconds, 0.02) == [2, 3]
    assert yardsticks.new_bests(scripts, seconds, 0.2) == []
