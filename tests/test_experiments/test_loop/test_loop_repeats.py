"""A program that the run has seen is not run again; all follows from the ledger."""

import contextlib
import dataclasses
import math
from concurrent.futures import Future

import loop_help as helper
import numpy as np
import pytest
from loop_help import Unsalted
from loop_help import make_loop as _loop

from experiments.config.arms import get_arm
from experiments.config.budget import Budget
from experiments.config.errors import LoopError, Stopped
from experiments.config.protocol import PAPER, SOUND
from experiments.loop.algorithm import Loop
from experiments.loop.repeats import program_digest
from experiments.loop.select import Entry, Parents
from experiments.loop.turns import run
from experiments.records.recorded import MEASURED

MEASURED_OF_ATTEMPTS = ("started_at", "grading_s")


def _counted(ran):
    def execute(run_id, script):
        ran.append((run_id, program_digest(script)))
        return helper.execute(run_id, script)

    return execute


def _rows(folder):
    return [
        {k: v for k, v in r.items() if k not in MEASURED_OF_ATTEMPTS}
        for r in helper.records(folder)
    ]


def _numbers(folder):
    return [
        {k: v for k, v in m.items() if k not in MEASURED}
        for m in helper.records(folder, "metrics.jsonl")
    ]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder, ran = tmp_path_factory.mktemp("repeats") / "run", []
    folder.mkdir()
    changes = {"execute": _counted(ran)}
    with _loop(folder, Unsalted(folder), changes=changes) as loop:
        run([loop], Budget(steps=6))
    return folder, ran, loop.used()


def test_comments_and_layout_are_no_program():
    one = program_digest(b"x = {'a': 1}\n\n# why\ny = 2  # so\n")
    assert one == program_digest(b'x = {"a":1}\r\ny=2')
    assert one != program_digest(b"x = {'a': 1}\ny = 3\n")
    broken = program_digest(b"def f(:\r\n  pass   \r\n")
    assert broken == program_digest(b"def f(:\n  pass\n\n")
    assert broken != program_digest(b"def f(:\n    pass\n")
    for odd in (b"\x00", b"(" * 10_000, b"'\\d'", b"\xff\xfe", b"# coding: none\nx"):
        assert len(program_digest(odd)) == 64


def test_a_program_is_run_once(straight):
    _, ran, _ = straight
    programs = [program for _, program in ran]
    assert len(programs) == len(set(programs)) <= len(helper.MENU)


def test_a_repeat_says_what_its_first_run_says(straight):
    folder, ran, used = straight
    rows = helper.records(folder)
    by_id = {r["run_id"]: r for r in rows}
    firsts = [r for r in rows if "repeat_of" not in r]
    assert {r["run_id"] for r in firsts} == {run_id for run_id, _ in ran}
    repeats = [r for r in rows if "repeat_of" in r]
    assert len(repeats) > len(firsts)
    same = ("program_sha256", "status", "reason", "score", "reward", "value", "stdout")
    for r in repeats:
        first = by_id[r["repeat_of"]]
        assert first["step"] <= r["step"]
        assert [r.get(n) for n in same] == [first.get(n) for n in same]
        assert r["execution_s"] == first["execution_s"]
        assert r["delta_s"] == max(first["execution_s"] + r["generation_s"], 0.1)
    clock = np.zeros(6)
    for r in rows:
        clock[r["chain"]] += 0.1 if "repeat_of" in r else max(r["execution_s"], 0.1)
    assert used["execution"] == pytest.approx(clock.mean())


def test_numbers_of_a_step_count_first_runs_where_they_must(straight):
    folder, _, _ = straight
    rate = None
    for m in helper.records(folder, "metrics.jsonl"):
        rows = [r for r in helper.records(folder) if r["step"] == m["step"]]
        fresh = [r for r in rows if "repeat_of" not in r]
        assert m["repeats"] == len(rows) - len(fresh)
        if fresh:
            earned = sum(r["value"] for r in fresh) / sum(r["delta_s"] for r in fresh)
            assert m["on_policy_rate"] == pytest.approx(earned)
        else:
            assert m["rho_next"] == rate
        rate = m["rho_next"]
        # The learner sees every attempt: the same action, the same known outcome.
        assert m["weight"] == [1.0] * 6
        assert m["mean_reward"] == pytest.approx(np.mean([r["reward"] for r in rows]))
        programs = {r["run_id"]: r["program_sha256"] for r in helper.records(folder)}
        shown = list(dict.fromkeys(p for p in m["parents"] if p))
        assert len({programs[p] for p in shown}) == len(shown)


@pytest.mark.parametrize("stops", [1, 3, 5])
def test_a_run_stopped_inside_steps_comes_to_the_same(straight, tmp_path, stops):
    left = [0]

    def execute(run_id, script):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return helper.execute(run_id, script)

    for _ in range(40):
        left[0] = stops
        with (
            _loop(
                tmp_path, Unsalted(tmp_path), resume=True, changes={"execute": execute}
            ) as loop,
            contextlib.suppress(Stopped),
        ):
            run([loop], Budget(steps=6))
        if loop.next_step == 6:
            break
    assert _rows(tmp_path) == _rows(straight[0])
    assert _numbers(tmp_path) == _numbers(straight[0])


@pytest.mark.parametrize("kept", [1, 2, 4, 7, 10])
def test_a_run_killed_between_two_records_comes_to_the_same(straight, tmp_path, kept):
    """As after SIGKILL: the ledger ends anywhere, a torn line after it."""
    with _loop(tmp_path, Unsalted(tmp_path)) as loop:
        run([loop], Budget(steps=2))
    lines = (tmp_path / "attempts.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "attempts.jsonl").write_bytes(b"".join(lines[:kept]) + b'{"run_id": ')
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "policy.npz").unlink()
    with _loop(tmp_path, Unsalted(tmp_path), resume=True) as loop:
        run([loop], Budget(steps=6))
    assert _rows(tmp_path) == _rows(straight[0])
    assert _numbers(tmp_path) == _numbers(straight[0])


def test_a_replay_runs_nothing_and_is_the_run_again(straight, tmp_path):
    def never(*_):
        raise AssertionError("a replay executes nothing")

    hooks = helper.hooks(Unsalted(tmp_path), execute=never)
    with Loop(tmp_path, helper.spec(), hooks, replay=straight[0]) as loop:
        run([loop], Budget(steps=100))
    assert _numbers(tmp_path) == _numbers(straight[0])
    with _loop(tmp_path, Unsalted(tmp_path), resume=True) as loop:
        assert loop.next_step == 6


def test_a_repeat_waits_for_a_run_and_is_lost_with_it(tmp_path):
    menu, late = ((0.9, 5.0),), []

    def execute(run_id, script):
        late.append((Future(), run_id, script))
        if "-00001-" in run_id:
            raise RuntimeError("no slot")
        return helper.execute(run_id, script)

    with _loop(
        tmp_path, Unsalted(tmp_path, menu=menu), changes={"execute": execute}
    ) as loop:
        metrics = loop.step()
    assert len(late) == 1
    assert metrics["repeats"] == 5

    def broken(run_id, script):
        late.append(run_id)
        raise RuntimeError("no slot")

    other = tmp_path / "lost"
    other.mkdir()
    late.clear()
    policy = Unsalted(other, menu=menu)
    with (
        _loop(other, policy, changes={"execute": broken}) as loop,
        pytest.raises(LoopError, match="every attempt"),
    ):
        loop.step()
    assert len(late) == 1
    rows = helper.records(other)
    assert {r["status"] for r in rows} == {"infrastructure"}
    assert "was lost: sandbox: RuntimeError" in rows[1]["reason"]
    # What was lost is no first run: it runs when the step is tried again.
    with _loop(other, Unsalted(other, menu=menu), resume=True) as loop:
        assert loop.step()["repeats"] == 5
        assert loop.step()["repeats"] == 6


def test_the_bonus_for_a_new_best_is_paid_once(tmp_path):
    protocol = dataclasses.replace(PAPER, repeats="reuse")
    spec = helper.spec(protocol=protocol)
    policy = Unsalted(tmp_path, menu=((0.9, 5.0),))
    with Loop(tmp_path, spec, helper.hooks(policy)) as loop:
        loop.step()
    rewards = sorted(r["reward"] for r in helper.records(tmp_path))
    assert rewards == pytest.approx([0.9] * 5 + [1.4])


def test_repeats_are_run_again_where_that_is_asked_for(tmp_path):
    spec = helper.spec(protocol=dataclasses.replace(SOUND, repeats="run"))
    ran = []
    policy = Unsalted(tmp_path)
    with Loop(tmp_path, spec, helper.hooks(policy, execute=_counted(ran))) as loop:
        metrics = [loop.step() for _ in range(3)]
    assert len(ran) == 18
    assert not any("repeats" in m for m in metrics)
    assert not any("repeat_of" in r for r in helper.records(tmp_path))
    assert PAPER.repeats == "run"


def test_parents_keep_one_entry_a_program_and_say_its_rank():
    arm = get_arm("vanilla")
    entries = [
        Entry("a", 0, 0.5, 1.0, "P"),
        Entry("b", 1, 0.9, 1.0, "Q"),
        Entry("c", 2, 0.5, 1.0, "P"),
        Entry("d", 3, 0.1, 1.0, None),
    ]
    distinct, every = Parents(3, distinct=True), Parents(4)
    for entry in entries:
        distinct.add(entry)
        every.add(entry)
    found = distinct.next_states(arm, 0.0, 4)
    assert [(e.run_id, e.rank) for e in found] == [
        *(("b", (1, 3)), ("a", (2, 3)), ("d", (3, 3)), ("b", (1, 3)))
    ]
    found = every.next_states(arm, 0.0, 4)
    assert [(e.run_id, e.rank) for e in found] == [
        *(("b", (1, 3)), ("a", (2, 3)), ("c", (2, 3)), ("d", (3, 3)))
    ]
    assert distinct.next_states(get_arm("independent"), 0.0, 2) == [None, None]
    distinct.add(Entry("e", 4, 0.2, 1.0, "R"))  # a leaves, and may come back
    distinct.add(Entry("f", 5, 0.5, 1.0, "P"))
    assert set(distinct.by_id()) == {"d", "e", "f"}


def test_a_prompt_is_told_its_parents_rank(tmp_path):
    told = []

    def describe(previous):
        if previous is not None:
            told.append(previous.rank)
        return helper.describe(previous)

    with _loop(tmp_path, changes={"describe": describe}) as loop:
        first = loop.step()
        loop.step()
    count = round(first["valid_share"] * 6)
    assert told == [(place, count) for place in range(1, count + 1)]


def test_cpu_seconds_can_be_what_a_script_pays(tmp_path):
    rule = dataclasses.replace(SOUND.rule, script_clock="cpu")
    spec = helper.spec(protocol=dataclasses.replace(SOUND, rule=rule))

    def execute(run_id, script):
        record = helper.run_record(run_id, script)
        if run_id.endswith("-002"):
            return helper.execute(run_id, script)
        future = Future()
        future.set_result(dataclasses.replace(record, cpu_s=0.7, cpu_source="proc"))
        return future

    policy = helper.ScriptedPolicy(tmp_path)
    with Loop(tmp_path, spec, helper.hooks(policy, execute=execute)) as loop:
        loop.step()
    for r in helper.records(tmp_path):
        if r["chain"] == 2:
            assert r["status"] == "infrastructure"
            assert "cpu_s" in r["reason"]
            assert "--clock=wall" in r["reason"]
            continue
        assert r["delta_s"] == pytest.approx(0.7 + r["generation_s"])
    assert math.isfinite(loop.used()["execution"])
