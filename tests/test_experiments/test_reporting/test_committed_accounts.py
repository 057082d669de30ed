"""Records from before a setting existed mean what they meant: all committed runs."""

import json

import pytest

from benchmarks import committed_report
from experiments.config.arms import Arm
from experiments.config.plain import from_plain, to_plain
from experiments.config.protocol import Protocol
from experiments.config.settings import read_settings
from experiments.loop.accounts import Accounts
from experiments.records.ledger import read
from experiments.records.recorded import LATER, MEASURED, by_step
from experiments.records.results import row_of
from experiments.records.spec import RunSpec, Scoring
from rpg_tasks import get_task

# Fits of the rate are float32: another processor may round otherwise.
_CLOSE = {"rel": 1e-4, "abs": 1e-6}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("committed")
    committed_report.unpack(root)
    folders = sorted(root.rglob("seed-*"))
    assert len(folders) == 54
    return folders


def _spec(folder):
    config = json.loads((folder / "config.json").read_text("utf-8"))["config"]
    protocol = from_plain(Protocol, config["protocol"])
    assert to_plain(protocol) == config["protocol"]
    assert (protocol.repeats, protocol.rule.script_clock) == ("run", "wall")
    return RunSpec(
        arm=from_plain(Arm, config["arm"]),
        protocol=protocol,
        scoring=Scoring(get_task(config["task"]), protocol.rule, config["baseline"]),
        seed=config["seed"],
        limit_s=config["limit_s"],
    )


def test_every_number_of_every_step_is_as_it_was(runs):
    for folder in runs:
        accounts = Accounts(_spec(folder))
        metrics = [m for _, m in read(folder / "metrics.jsonl")]
        steps = by_step(folder / "attempts.jsonl")
        for found, (step, located) in zip(metrics, steps, strict=False):
            _, numbers = accounts.take(step, located)
            assert set(numbers) - set(LATER) <= set(found) - set(MEASURED)
            for name in set(numbers) - set(LATER):
                value = numbers[name]
                if name == "clock":
                    assert value == found[name]
                elif name in ("arm", "parents", "best_score", "attempts"):
                    assert value == found[name], name
                else:
                    assert value == pytest.approx(found[name], **_CLOSE), name


def test_the_settings_say_the_same_and_so_do_the_results(runs):
    for experiment in {folder.parents[2] for folder in runs}:
        settings = read_settings(experiment)
        stored = json.loads((experiment / "config.json").read_text("utf-8"))["config"]
        assert to_plain(settings)["protocol"] == stored["protocol"]
        assert settings.protocol.repeats == "run"
    folder = runs[0]
    known = {"task": "t", "arm": "a", "seed": 0, "status": "done", "data": "synthetic"}
    assert row_of(folder, **known)["test_place"] == 1
