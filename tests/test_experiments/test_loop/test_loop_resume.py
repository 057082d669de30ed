"""A run that was killed goes on as if it had not been; a replay is the run again."""

import contextlib
import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import Future

import loop_help as helper
import numpy as np
import pytest
from repo_paths import ROOT, SUPPORT

from experiments.config.budget import Budget
from experiments.config.errors import LoopError, ReplayError
from experiments.config.protocol import SOUND
from experiments.loop.accounts import Accounts
from experiments.loop.algorithm import Loop
from experiments.loop.turns import run
from experiments.records.recorded import MEASURED, by_step


def _numbers(folder):
    return [
        {k: v for k, v in m.items() if k not in MEASURED}
        for m in helper.records(folder, "metrics.jsonl")
    ]


def _attempts(folder):
    measured = ("started_at", "grading_s")
    return [
        {k: v for k, v in r.items() if k not in measured}
        for r in helper.records(folder)
    ]


def _straight(folder, steps, kind=helper.ScriptedPolicy, **options):
    folder.mkdir()
    policy = kind(folder)
    with Loop(folder, helper.spec(**options), helper.hooks(policy)) as loop:
        run([loop], Budget(steps=steps))
    return policy


@pytest.mark.parametrize("every", [1, 3])
def test_stopping_after_each_step_changes_nothing(tmp_path, every):
    straight = _straight(tmp_path / "a", 7, checkpoint_every=every)
    folder = tmp_path / "b"
    folder.mkdir()
    for _ in range(7 * every):  # a process each; not every one gets to a checkpoint
        policy = helper.ScriptedPolicy(folder)
        spec = helper.spec(checkpoint_every=every)
        with Loop(folder, spec, helper.hooks(policy), resume=True) as loop:
            while loop.next_step < 7:
                before = loop.next_step
                loop.step()
                if (before + 1) % every == 0:
                    break
    assert _numbers(folder) == _numbers(tmp_path / "a")
    assert _attempts(folder) == _attempts(tmp_path / "a")
    np.testing.assert_array_equal(policy.theta, straight.theta)


@pytest.mark.parametrize("arm", ["rpg", "on-policy-rate"])
def test_replay_is_bit_for_bit(tmp_path, arm):
    policy = _straight(tmp_path / "a", 5, arm=arm)

    def never(*_):
        raise AssertionError("a replay executes and grades nothing")

    folder = tmp_path / "b"
    folder.mkdir()
    again = helper.ScriptedPolicy(folder)
    hooks = helper.hooks(again, execute=never, grade=never)
    with Loop(folder, helper.spec(arm), hooks, replay=tmp_path / "a") as loop:
        run([loop], Budget(steps=100))
        assert loop.next_step == 5
    np.testing.assert_array_equal(again.theta, policy.theta)
    one, two = helper.records(tmp_path / "a"), helper.records(folder)
    assert one == two
    lines = [
        sorted((d / "attempts.jsonl").read_text().splitlines())
        for d in (tmp_path / "a", folder)
    ]
    assert lines[0] == lines[1]
    assert _numbers(folder) == _numbers(tmp_path / "a")


def test_a_changed_record_is_noticed(tmp_path):
    _straight(tmp_path / "a", 3)
    path = tmp_path / "a" / "attempts.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if '"valid": true' in line)
    field = lines[at].split('"delta_s": ')[1].split("}")[0].split(",")[0]
    lines[at] = lines[at].replace(f'"delta_s": {field}', '"delta_s": 77.0')
    path.write_text("".join(lines))
    folder = tmp_path / "b"
    folder.mkdir()
    hooks = helper.hooks(helper.ScriptedPolicy(folder))
    with (
        Loop(folder, helper.spec(), hooks, replay=tmp_path / "a") as loop,
        pytest.raises(ReplayError, match=r"step \d: \w+ is .* on record is"),
    ):
        run([loop], Budget(steps=3))
    with pytest.raises(LoopError, match="on record is"):
        Loop(
            tmp_path / "a",
            helper.spec(),
            helper.hooks(helper.ScriptedPolicy(tmp_path / "a")),
            resume=True,
        )


def test_another_policy_is_noticed(tmp_path):
    _straight(tmp_path / "a", 2)
    folder = tmp_path / "b"
    folder.mkdir()
    other = helper.hooks(helper.ScriptedPolicy(folder, seed=1))
    with (
        Loop(folder, helper.spec(), other, replay=tmp_path / "a") as loop,
        pytest.raises(ReplayError, match="the policy wrote another answer"),
    ):
        loop.step()


def test_lost_records_are_noticed(tmp_path):
    folder = tmp_path / "a"
    _straight(folder, 3)
    path = folder / "attempts.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2] + lines[3:]))
    with pytest.raises(LoopError, match="5 of 6 attempts of step 0"):
        Loop(
            folder,
            helper.spec(),
            helper.hooks(helper.ScriptedPolicy(folder)),
            resume=True,
        )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [helper.ScriptedPolicy, helper.Unsalted])
def test_kill_nine_at_random_moments(tmp_path, kind):
    """SIGKILL until it is through; then it equals a run that was left alone."""
    straight = _straight(tmp_path / "a", 12, kind, checkpoint_every=3)
    folder = tmp_path / "b"
    folder.mkdir()
    command = [
        sys.executable,
        str(SUPPORT / "loop_program.py"),
        str(folder),
        "12",
        "0.02",
        kind.__name__,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ledger = folder / "attempts.jsonl"
    kills, size = 0, 0
    for growth in (1, 9000, 4000, 12_000, 10**9):
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True
        )
        # By progress and not by time: a busy machine is slow.
        while process.poll() is None:
            now = ledger.stat().st_size if ledger.exists() else 0
            if now >= size + growth:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.003)
        out, _ = process.communicate()
        size = ledger.stat().st_size
    assert out == "done\n"
    assert kills >= 3
    assert _numbers(folder) == _numbers(tmp_path / "a")
    assert _attempts(folder) == _attempts(tmp_path / "a")
    with np.load(folder / "policy.npz") as file:
        np.testing.assert_array_equal(file["theta"], straight.theta)


def test_arms_take_turns_under_equal_budgets(tmp_path):
    order, now = [], [0.0]

    def clock():
        now[0] += 0.25 if order[-3:].count("rpg") > 1 else 0.125
        return now[0]

    loops = []
    for arm in ("rpg", "vanilla"):
        folder = tmp_path / arm
        folder.mkdir()
        hooks = helper.hooks(helper.ScriptedPolicy(folder))
        loops.append(Loop(folder, helper.spec(arm), hooks, clock=clock))
    try:
        run(
            loops,
            Budget(seconds=60.0),
            lambda loop, _: order.append(loop.spec.arm.name),
        )
        used = [loop.used() for loop in loops]
    finally:
        for loop in loops:
            loop.close()
    for one in used:
        assert one["total"] >= 60
        assert one["total"] == pytest.approx(60, abs=12)
    assert order[:2] == ["rpg", "vanilla"]
    runs = "".join("r" if name == "rpg" else "v" for name in order)
    assert "rrrrr" not in runs
    assert "vvvvv" not in runs


def test_budgets_are_checked():
    for bad in ({}, {"seconds": 0.0}, {"steps": -1}, {"steps": 3, "clock": "cpu"}):
        with pytest.raises(ValueError):
            Budget(**bad)
    budget = Budget(seconds=10, steps=4, clock="execution")
    assert budget.share({"steps": 1, "execution": 9.0, "total": 99.0}) == 0.9


def test_ten_thousand_attempts_are_taken_up_in_flat_memory(tmp_path):
    """A ledger of 10,000 attempts is read and re-scored; nothing is kept of each."""
    source = tmp_path / "a"
    _straight(source, 1, chains=100)
    text = (source / "attempts.jsonl").read_text().splitlines()
    first = [json.loads(line) for line in text]
    target = tmp_path / "b"
    target.mkdir()
    with (target / "attempts.jsonl").open("w") as file:
        for step in range(100):
            for record in first:
                name = f"{step}.{record['chain']}"
                new = record | {"step": step, "run_id": name, "stdout": "x" * 1500}
                file.write(json.dumps(new | {"parent": None}) + "\n")
    spec = helper.spec(chains=100, protocol=dataclasses.replace(SOUND, repeats="run"))
    Accounts(spec).take(*next(by_step(target / "attempts.jsonl")))  # compiles
    accounts = Accounts(spec)
    with _traced() as held:
        for step, located in by_step(target / "attempts.jsonl"):
            accounts.take(step, located)
            del located
            if step in (40, 99):  # the buffer of 1,280 is full at the first
                held()
    assert accounts.attempts == 10_000
    assert len(accounts.parents) == 1280
    before, after = held.bytes
    assert after - before < 5900 * 20


def test_steps_leave_nothing_behind(tmp_path, monkeypatch):
    """The whole step: what stays of an attempt is the name that must not recur."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    chains, marks = 20, (15, 45)

    def execute(run_id, script):
        record = helper.run_record(run_id, script)
        future = Future()
        future.set_result(dataclasses.replace(record, stdout_tail="x" * 1500))
        return future

    protocol = dataclasses.replace(SOUND, buffer_capacity=60)
    spec = helper.spec(chains=chains, protocol=protocol, rate={"window": 60})
    policy = helper.ScriptedPolicy(tmp_path)
    with Loop(tmp_path, spec, helper.hooks(policy, execute=execute)) as loop:
        loop.step()
        with _traced() as held:
            while loop.next_step <= marks[1]:
                loop.step()
                policy.sampled.clear()
                if loop.next_step in marks:
                    held()
    before, after = held.bytes
    assert after - before < (marks[1] - marks[0]) * chains * 500


class _Held:
    """Bytes held at each call."""

    def __init__(self):
        self.bytes = []

    def __call__(self):
        gc.collect()
        self.bytes.append(tracemalloc.get_traced_memory()[0])


@contextlib.contextmanager
def _traced():
    tracemalloc.start()
    try:
        yield _Held()
    finally:
        tracemalloc.stop()
