"""Faults in each phase: one clear line or the run goes on, and never a reward."""

import errno
import os
from concurrent.futures import Future

import loop_help as helper
import numpy as np
import pytest
from loop_help import make_loop as _loop

from experiments.config.budget import Budget
from experiments.config.errors import LoopError, Stopped
from experiments.loop.turns import run
from experiments.reporting.curves import read_chains
from rpg_tasks.grading import Grade

GOOD = (0.9, 5.0)


def _only(folder, *menu):
    return helper.ScriptedPolicy(folder, menu=menu)


def _is_lost(record):
    return record["status"] == "infrastructure" and all(
        record[name] is None for name in ("reward", "value", "delta_s", "score")
    )


@pytest.mark.parametrize("fault", ["status", "future", "submit", "nan seconds"])
def test_a_sandbox_error_is_no_reward(tmp_path, fault):
    def execute(run_id, script):
        future = helper.execute(run_id, script)
        if run_id.endswith("-002"):
            future = Future()
            if fault == "submit":
                raise RuntimeError("the pool is closed")
            if fault == "future":
                future.set_exception(OSError("no such slot"))
            else:
                options = {"delta_s": float("nan"), "status": "ok"}
                if fault == "status":
                    options = {"status": "sandbox_error", "error": "no cgroup"}
                future.set_result(helper.RunRecord(run_id=run_id, **options))
        return future

    with _loop(tmp_path, changes={"execute": execute}) as loop:
        first, second = loop.step(), loop.step()
    for metrics in (first, second):
        assert metrics["infrastructure"] == 1
        assert metrics["relative"][2] == metrics["advantage"][2] == 0
        assert metrics["charged_s"][2] == 0
    lost = [r for r in helper.records(tmp_path) if r["chain"] == 2]
    assert all(map(_is_lost, lost))
    assert lost[0]["reason"].startswith("sandbox:")
    # The others' numbers are those of a batch without it.
    others = [i for i in range(6) if i != 2]
    relative = np.array(first["relative"])[others]
    expected = [relative[i] - np.delete(relative, i).mean() for i in range(5)]
    np.testing.assert_allclose(np.array(first["advantage"])[others], expected, 1e-5)


def test_a_grader_that_fails_is_no_reward(tmp_path):
    def grade(run):
        if run.run_id.endswith("-001"):
            raise MemoryError("answers too large")
        return helper.grade(run)

    policy = _only(tmp_path, GOOD)
    with _loop(tmp_path, policy, changes={"grade": grade}) as loop:
        metrics = loop.step()
    records = helper.records(tmp_path)
    assert _is_lost(records[1])
    assert records[1]["reason"] == "grader: MemoryError: answers too large"
    assert [r["valid"] for r in records] == [True, False, True, True, True, True]
    assert metrics["infrastructure"] == 1


@pytest.mark.parametrize("score", [float("nan"), float("inf"), None])
def test_a_score_that_is_no_number_is_invalid(tmp_path, score):
    def grade(run):
        return Grade(True, score, None, None, None)

    with _loop(tmp_path, _only(tmp_path, GOOD), changes={"grade": grade}) as loop:
        metrics = loop.step()
    for record in helper.records(tmp_path):
        assert record["status"] == "invalid"
        assert record["reward"] == 0.0
        assert record["score"] is None
    assert metrics["valid_share"] == 0


def test_a_slot_that_never_answers(tmp_path):
    def execute(run_id, script):
        if run_id.endswith("-004"):
            return Future()  # forever
        return helper.execute(run_id, script)

    with _loop(tmp_path, changes={"execute": execute}, silence_s=0.05) as loop:
        metrics = loop.step()
    assert metrics["infrastructure"] == 1
    lost = helper.records(tmp_path)[4]
    assert _is_lost(lost)
    assert "no script finished for 0.05 s" in lost["reason"]


def test_empty_answers_for_a_whole_batch(tmp_path):
    class Mute(helper.ScriptedPolicy):
        def sample(self, step, rows, prompts):
            for generation in super().sample(step, rows, prompts):
                if step == 0:
                    texts = ("", "no code", "```python\n```", "\ud800")
                    texts = (texts * 3)[: len(generation.rows)]
                    generation = generation._replace(texts=texts)
                yield generation

    def execute(run_id, script):
        assert "-00000-" not in run_id, "there was nothing to execute"
        return helper.execute(run_id, script)

    with _loop(tmp_path, Mute(tmp_path), changes={"execute": execute}) as loop:
        first, second = loop.step(), loop.step()
    assert first["valid_share"] == first["rho"] == 0
    assert first["parents"] == second["parents"] == [None] * 6
    rows = [r for r in helper.records(tmp_path) if r["step"] == 0]
    assert {r["status"] for r in rows} == {"no_script"}
    assert all(r["delta_s"] >= 0.1 and r["reward"] == 0 for r in rows)
    assert second["valid_share"] > 0


@pytest.mark.parametrize("clock", ["execution", "attempt"])
def test_answers_without_scripts_use_up_a_budget(tmp_path, clock):
    """They take no time to run; a budget of seconds must end all the same."""

    class Mute(helper.ScriptedPolicy):
        def sample(self, step, rows, prompts):
            for group in super().sample(step, rows, prompts):
                texts = ("no code",) * len(group.rows)
                yield group._replace(texts=texts, seconds=0 * group.seconds)

    with _loop(tmp_path, Mute(tmp_path)) as loop:
        run([loop], Budget(seconds=0.95, steps=50, clock=clock))
        assert loop.next_step == 10  # of a tenth of a second each
        assert loop.used()[clock] == pytest.approx(1.0)
    for chain in read_chains(tmp_path, helper.TASK, baseline=0.5):
        assert chain.time[-1] == pytest.approx(1.0)


def test_a_start_of_failures_does_not_freeze_learning(tmp_path):
    policy = _only(tmp_path, ("nonzero_exit", 0.1), GOOD)
    theta = np.array([8.0, 0.0])
    policy.theta = theta.copy()  # nearly always the crash
    with _loop(tmp_path, policy, chains=4) as loop:
        for _ in range(3):
            metrics = loop.step()
            assert metrics["valid_share"] == metrics["rho"] == 0
            assert metrics["advantage"] == [0.0] * 4
        policy.theta = np.array([1.0, 0.0])  # luck: now and then a script that works
        history = [loop.step() for _ in range(60)]
    assert all(m["rho"] >= 0 for m in history)
    assert policy.theta[1] > policy.theta[0] + 1
    assert np.mean([m["valid_share"] for m in history[-10:]]) > 0.8


def test_equal_rewards_teach_nothing(tmp_path):
    class Even(helper.ScriptedPolicy):
        def sample(self, step, rows, prompts):
            for generation in super().sample(step, rows, prompts):
                yield generation._replace(seconds=np.full(len(generation.rows), 0.5))

    policy = Even(tmp_path, menu=(GOOD, GOOD))
    with _loop(tmp_path, policy) as loop:
        for _ in range(3):
            metrics = loop.step()
            np.testing.assert_allclose(metrics["advantage"], 0, atol=1e-6)
    np.testing.assert_allclose(policy.theta, 0, atol=1e-5)


@pytest.mark.parametrize("victim", ["drafts", "scripts", "attempts", "metrics"])
def test_a_full_disk_stops_with_one_line_and_resumes(tmp_path, monkeypatch, victim):
    with _loop(tmp_path) as loop:
        loop.step()

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with _loop(tmp_path, resume=True) as loop, monkeypatch.context() as patch:
        if victim == "drafts":
            patch.setattr("experiments.records.drafts.write_through", full)
        elif victim == "scripts":
            patch.setattr("experiments.records.texts.write_through", full)
        else:
            ledger = loop._ledger if victim == "attempts" else loop._metrics
            patch.setattr(ledger, "_write", full)
        with pytest.raises(LoopError, match=r"No space left.*--resume"):
            loop.step()
    with _loop(tmp_path, resume=True) as loop:
        loop.step()
    records = helper.records(tmp_path)
    assert [(r["step"], r["chain"]) for r in records] == [
        (s, c) for s in range(2) for c in range(6)
    ]
    assert [m["step"] for m in helper.records(tmp_path, "metrics.jsonl")] == [0, 1]


def test_ctrl_c_keeps_what_had_finished(tmp_path):
    calls = []

    def execute(run_id, script):
        if len(calls) == 4:
            raise KeyboardInterrupt
        calls.append(run_id)
        return helper.execute(run_id, script)

    with (
        _loop(tmp_path, changes={"execute": execute}) as loop,
        pytest.raises(Stopped, match=r"stopped in step 0: 4 of 6 .*--resume"),
    ):
        loop.step()
    assert len(helper.records(tmp_path)) == 4
    again = []

    def execute_rest(run_id, script):
        again.append(run_id)
        return helper.execute(run_id, script)

    with _loop(tmp_path, resume=True, changes={"execute": execute_rest}) as loop:
        loop.step()
    assert len(again) == 2
    assert not set(again) & set(calls)


def test_a_folder_with_a_run_is_not_run_over(tmp_path):
    with _loop(tmp_path) as loop:
        loop.step()
    with pytest.raises(LoopError, match="holds 6 attempts already: add --resume"):
        _loop(tmp_path)


def test_a_parent_that_no_prompt_can_show(tmp_path):
    """Its chain starts from the beginning: base prompt, no parent on record."""

    def describe(previous):
        if previous is not None and previous.score == 0.9:
            return None
        return helper.describe(previous)

    policy = _only(tmp_path, (0.9, 2.0), (0.8, 2.0))
    with _loop(tmp_path, policy, changes={"describe": describe}) as loop:
        loop.step()
        metrics = loop.step()
    first, second = (
        [r for r in helper.records(tmp_path) if r["step"] == k] for k in (0, 1)
    )
    scores = {r["run_id"]: r["score"] for r in first}
    assert {0.8, 0.9} == set(scores.values())
    found = [r["parent"] for r in second]
    assert metrics["parents"] == found
    assert {scores[p] for p in found if p} == {0.8}
    base = {r["prompt_id"] for r in first}
    assert {r["prompt_id"] for r in second if r["parent"] is None} == base
