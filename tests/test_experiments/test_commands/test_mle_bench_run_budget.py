"""Runs that go on with a larger budget, and runs that end before theirs."""

import json

import loop_help as helper
import mle_run_help as run_help
import pytest
from mle_run_help import Experiment
from synthetic_helpers import shared_cache

from experiments.config.budget import Budget
from experiments.config.errors import UsageError
from experiments.config.settings import longer
from experiments.records import results

COMMAND = run_help.COMMAND


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return shared_cache(tmp_path_factory)


def test_a_finished_run_goes_on_with_a_larger_budget(tmp_path, cache):
    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"], steps=1)
    assert experiment.launch()[0] == 0
    before = (experiment.run() / "attempts.jsonl").read_bytes()
    experiment.settings = longer(experiment.settings, None, 3)
    code, text = experiment.launch(resume=True)
    assert code == 0
    assert "goes on, the budget has grown" in text
    assert (experiment.run() / "attempts.jsonl").read_bytes().startswith(before)
    config = json.loads((experiment.out / "config.json").read_text())
    assert config["config"]["budget"]["steps"] == 3
    assert [c["was"]["budget"]["steps"] for c in config["changes"]] == [1]
    straight = Experiment(tmp_path / "straight", cache, arms=["rpg"], steps=3)
    assert straight.launch()[0] == 0
    for name, key in (("metrics", "relative"), ("attempts", "script_sha256")):
        found, expected = (
            [r[key] for r in run_help.lines(e.run() / f"{name}.jsonl")]
            for e in (experiment, straight)
        )
        assert found == expected
    assert "done already" in experiment.launch(resume=True)[1]
    experiment.settings = run_help.settings(arms=["rpg"], steps=2)
    with pytest.raises(UsageError, match=r"another configuration .*budget was"):
        experiment.launch(resume=True)


def test_a_test_of_what_was_best_before_is_no_test_of_the_best(tmp_path, cache):
    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"], steps=1)
    assert experiment.launch()[0] == 0
    asked = {"task": run_help.TASK, "arm": "rpg", "seed": 0}
    asked |= {"status": "stopped", "data": "synthetic"}
    before = results.row_of(experiment.run(), **asked)
    assert before["test_status"] == "valid"
    path = experiment.run() / "metrics.jsonl"
    last = run_help.lines(path)[-1]
    more = last | {"step": 1, "best_score": last["best_score"] + 0.01}
    path.write_text("".join(json.dumps(line) + "\n" for line in (last, more)))
    after = results.row_of(experiment.run(), **asked)
    assert after["best_validation_score"] == more["best_score"]
    assert after["test_status"] == "outdated"
    assert after["test_score"] is after["medal"] is None


def test_the_rate_of_an_arm_is_of_all_its_seconds():
    rows = [
        {"reward_rate": 1.0, "sum_delta_s": 1.0},
        {"reward_rate": 0.1, "sum_delta_s": 9.0},
        {"reward_rate": None, "sum_delta_s": None},
    ]
    assert results.pooled_rate(rows) == pytest.approx(0.19)
    assert results.pooled_rate(rows[2:]) is None


def test_a_budget_does_not_shrink():
    budget = Budget(seconds=10.0)
    assert budget.extended(20.0, None) == Budget(seconds=20.0)
    assert Budget(10.0, 3).extended(None, 4) == Budget(10.0, 4)
    for seconds, steps in ((9.0, None), (None, 5)):
        with pytest.raises(ValueError, match="can grow, not shrink"):
            budget.extended(seconds, steps)
    with pytest.raises(UsageError, match="--resume: a budget can grow"):
        longer(run_help.settings(steps=2), None, 1)


def test_a_diverging_arm_costs_no_other_its_test(tmp_path, cache, capsys):
    class Diverging(helper.ScriptedPolicy):
        def learn(self, step, generations, signals):
            return {"norm": float("nan")}

    experiment = Experiment(tmp_path / "run", cache, arms=["rpg", "vanilla"], steps=2)
    experiment.policy = lambda folder, seed: (
        Diverging if folder.parent.name == "rpg" else helper.ScriptedPolicy
    )(folder, seed=seed)
    code, text = experiment.launch()
    assert code == 1
    assert "would come to the same" in " ".join(text.split())
    assert "retry with" not in text
    error = capsys.readouterr().err
    assert "-rpg-s0, step 0: the update's norm is nan" in error
    assert "another --out" in error
    assert len(run_help.lines(experiment.run("vanilla") / "metrics.jsonl")) == 2
    assert run_help.lines(experiment.run("vanilla") / "final.jsonl")
    assert not (experiment.run("rpg") / "final.jsonl").exists()
