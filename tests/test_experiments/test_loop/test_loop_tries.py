"""Steps tried again, runs done again, runs that end early: nothing is lost or free."""

import dataclasses
from concurrent.futures import Future

import loop_help as helper
import pytest
from loop_help import make_loop as _loop

from experiments.config.budget import Budget
from experiments.config.errors import LoopError, Stopped
from experiments.loop.turns import run
from experiments.records.recorded import spent_s
from experiments.reporting.curves import read_chains

GOOD = (0.9, 5.0)


def _broken(run_id, script):
    raise RuntimeError("bwrap is gone")


def test_every_attempt_lost_stops_with_one_line_and_is_tried_again(tmp_path):
    with _loop(tmp_path) as loop:
        loop.step()
    with (
        _loop(tmp_path, resume=True, changes={"execute": _broken}) as loop,
        pytest.raises(LoopError, match=r"step 1: every attempt.*bwrap is gone") as stop,
    ):
        loop.step()
    assert "\n" not in str(stop.value)
    with _loop(tmp_path, resume=True) as loop:
        assert loop.step()["step"] == 1
        assert loop.accounts.attempts == 12
    ids = [r["run_id"] for r in helper.records(tmp_path)]
    assert len(ids) == len(set(ids)) == 18
    straight = tmp_path / "straight"
    straight.mkdir()
    with _loop(straight) as loop:
        expected = [loop.step() for _ in range(2)]
    found = helper.records(tmp_path, "metrics.jsonl")
    assert [m["relative"] for m in found] == [m["relative"] for m in expected]
    assert [m["rho"] for m in found] == [m["rho"] for m in expected]


def test_a_second_try_that_is_stopped_runs_what_it_lacks(tmp_path):
    with (
        _loop(tmp_path, changes={"execute": _broken}) as loop,
        pytest.raises(LoopError, match="every attempt"),
    ):
        loop.step()
    ran = []

    def interrupted(run_id, script):
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(run_id)
        return helper.execute(run_id, script)

    with (
        _loop(tmp_path, resume=True, changes={"execute": interrupted}) as loop,
        pytest.raises(Stopped, match="3 of 6"),
    ):
        loop.step()
    with _loop(tmp_path, resume=True) as loop:
        metrics = loop.step()
    assert metrics["infrastructure"] == 0
    assert len(helper.records(tmp_path)) == 12
    straight = tmp_path / "straight"
    straight.mkdir()
    with _loop(straight) as loop:
        assert loop.step()["relative"] == metrics["relative"]


def test_disturbed_runs_are_on_no_clock(tmp_path):
    def execute(run_id, script):
        record = helper.run_record(run_id, script)
        earlier = (
            helper.RunRecord(run_id=run_id, status="ok", delta_s=3.0),
            helper.RunRecord(run_id=run_id, status="sandbox_error", delta_s=7.0),
        )
        future = Future()
        future.set_result(dataclasses.replace(record, earlier=earlier))
        return future

    with _loop(
        tmp_path,
        helper.ScriptedPolicy(tmp_path, menu=[GOOD]),
        changes={"execute": execute},
    ) as loop:
        metrics = loop.step()
        assert loop.used()["execution"] == pytest.approx(5.0)
    assert [r["disturbed_s"] for r in helper.records(tmp_path)] == [3.0] * 6
    assert [r["execution_s"] for r in helper.records(tmp_path)] == [5.0] * 6
    assert metrics["mean_delta_s"] < 6  # the rate sees the run that counts
    chains = read_chains(tmp_path, helper.TASK, baseline=0.5)
    assert [float(c.time[-1]) for c in chains] == pytest.approx([5.0] * 6)


def test_records_of_an_older_form_keep_their_billing():
    assert spent_s({"execution_s": 5.0, "rerun_s": 3.0}) == 8.0
    assert spent_s({"execution_s": 5.0, "disturbed_s": 3.0}) == 5.0
    assert spent_s({"execution_s": 5.0, "repeat_of": "first"}) == 0.0


def test_a_checkpoint_is_written_once_a_step(tmp_path):
    class Policy(helper.ScriptedPolicy):
        saved = 0

        def save(self, step, meta):
            self.saved += 1
            super().save(step, meta)

    policy = Policy(tmp_path)
    with _loop(tmp_path, policy, checkpoint_every=2) as loop:
        run([loop], Budget(steps=3))
        loop.checkpoint()
    assert policy.saved == 2
    again = Policy(tmp_path)
    with _loop(tmp_path, again, resume=True, checkpoint_every=2) as loop:
        run([loop], Budget(steps=3))
        assert again.saved == 0
        loop.step()
    assert again.saved == 1


def test_an_update_that_diverges_is_not_committed(tmp_path):
    class Diverging(helper.ScriptedPolicy):
        def learn(self, step, generations, signals):
            return {"norm": float("nan")}

    with (
        _loop(tmp_path, Diverging(tmp_path)) as loop,
        pytest.raises(LoopError, match="step 0: the update's norm is nan"),
    ):
        loop.step()
    assert helper.records(tmp_path, "metrics.jsonl") == []
    ran = []

    def execute(run_id, script):
        ran.append(run_id)
        return helper.execute(run_id, script)

    with _loop(tmp_path, resume=True, changes={"execute": execute}) as loop:
        loop.step()
    assert ran == []  # the attempts were on record
    assert len(helper.records(tmp_path)) == 6


def test_a_run_that_diverges_leaves_the_others_to_their_budget(tmp_path):
    class Diverging(helper.ScriptedPolicy):
        def learn(self, step, generations, signals):
            return {"norm": float("inf")}

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        _loop(tmp_path / "a", Diverging(tmp_path / "a")) as bad,
        _loop(tmp_path / "b", checkpoint_every=2) as good,
    ):
        diverged = run([bad, good], Budget(steps=3))
        assert (bad.next_step, good.next_step) == (0, 3)
    (error,) = diverged
    assert "step 0: the update's norm is inf" in str(error)
    assert "another --out" in str(error)
    assert not (tmp_path / "a" / "policy.npz").exists()
    assert (tmp_path / "b" / "policy.npz").exists()
