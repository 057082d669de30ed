"""Repeats (attempts whose program was run before) count, but cost and earn nothing."""

import json

import numpy as np
import pandas as pd
import pytest
import report_help as helper

from experiments.records.recorded import is_repeat
from experiments.records.results import row_of
from experiments.reporting import curves, facts, learning, numbers, run_sheets
from experiments.reporting.load import load

SHARED = {
    "tasks": ("tabular-2022",), "arms": ("rpg", "vanilla"), "seeds": (0,), "steps": 4,
}  # fmt: skip


@pytest.fixture(scope="module", params=["attempt", "execution"])
def repeated(request, tmp_path_factory):
    """A run in which a third of the attempts are repeats, as records will say it."""
    folder = helper.make_run(tmp_path_factory.mktemp("repeats") / "run", **SHARED)
    for path in folder.glob("*/*/seed-*/attempts.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows[5::3]:
            row["repeat_of"] = rows[0]["run_id"]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for path in folder.glob("*/*/seed-*/config.json"):
        header = json.loads(path.read_text())
        header["config"]["protocol"]["rule"]["clock"] = request.param
        path.write_text(json.dumps(header))
    return folder, request.param


def test_old_records_have_no_repeats():
    assert not is_repeat({"run_id": "a"})
    assert not is_repeat({"repeat_of": None})
    assert is_repeat({"repeat_of": "a"})


def test_repeats_take_no_execution_seconds_and_earn_nothing(repeated):
    folder, clock = repeated
    experiment = load([folder])
    (task,) = experiment.tasks
    for arm in ("rpg", "vanilla"):
        (run,) = experiment.of(task, arm)
        frame = helper.attempts_frame(run.folder)
        again = frame.repeat_of.notna()
        known = frame.status != "infrastructure"
        first = frame[known & ~again]
        assert run.attempts.repeat.sum() == again.sum() > 0
        found = numbers.statistics(run)
        assert found["attempts"] == len(frame)
        assert found["share_repeats"] == pytest.approx(again.mean())
        assert found["valid_share"] == pytest.approx(frame[known].valid.mean())
        assert found["execution_mean"] == pytest.approx(first.execution_s.mean())
        assert found["seconds_mean"] == pytest.approx(first.delta_s.mean())
        asked = frame[known & again].generation_s.sum() if clock == "attempt" else 0.0
        rate = first.value.sum() / (first.delta_s.sum() + asked)
        assert found["rate"] == pytest.approx(rate)
        row = row_of(
            run.folder,
            task=task,
            arm=arm,
            seed=0,
            status="done",
            data="synthetic",
            clock=clock,
        )
        assert row["reward_rate"] == pytest.approx(rate)
        assert row["mean_delta_s"] == pytest.approx(first.delta_s.mean())
        units = numbers.units([run], "chains")
        assert units.reward.sum() == pytest.approx(first.value.sum())
        assert run.attempts.executed == (frame.repeat_of.isna()).sum()
        assert run.attempts.spent_s == pytest.approx(
            frame[~again].execution_s.fillna(0).sum()
        )
        relative = numbers.relative_rewards(run, 0.0)
        assert (relative[run.attempts.repeat & run.attempts.known] == 0).all()
    assert all(np.isfinite(c.first) for c in learning.checks(experiment, task))


def test_repeats_take_no_time_of_a_chain(repeated):
    folder, _ = repeated
    (run,) = load([folder / "tabular-2022" / "rpg" / "seed-0"]).runs
    frame = helper.attempts_frame(run.folder)
    frame = frame[frame.status != "infrastructure"]
    spent = frame.execution_s.clip(lower=0.1).where(frame.repeat_of.isna(), 0.0)
    chains = curves.read_chains(run.folder, run.task, baseline=0.5)
    for chain, (_, part) in zip(chains, spent.groupby(frame.chain), strict=True):
        np.testing.assert_allclose(chain.time, part.cumsum())


def test_the_share_of_repeats_is_shown(repeated):
    folder, _ = repeated
    experiment = load([folder])
    sheet = run_sheets.arm_sheet(experiment)
    assert "repeats" in sheet.head
    assert "not run again" in " ".join(sheet.about)
    whole = pd.concat([helper.attempts_frame(run.folder) for run in experiment.runs])
    (said,) = [v for k, v in facts.facts(experiment) if k == "attempts"]
    assert f"{100 * whole.repeat_of.notna().mean():.1f}% repeats" in said
