"""A run whose executions come from a table: what it lacks runs, the rest does not."""

import collections
import dataclasses
import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import loop_help as helper
import mle_run_help
import pytest
from synthetic_helpers import shared_cache

from experiments.config.budget import Budget
from experiments.config.errors import UsageError
from experiments.config.virtual import Virtual
from experiments.loop.algorithm import Loop
from experiments.loop.turns import run
from experiments.records.executions import ROWS, Executions
from experiments.reporting.facts import cautions
from experiments.reporting.load import load
from experiments.running.table_runs import TableRuns, mean_of
from sandbox_exec.protocol import SlotUse

VIRTUAL = Virtual("t", sampling_s=0.3, update_s=0.5, slots=2, runs=2)


class Sandbox:
    """Runs what scripts order, with a little more time at each run of one program."""

    def __init__(self):
        self.runs = collections.Counter()

    def execute(self, run_id, script):
        self.runs[script] += 1
        record = helper.run_record(run_id, script)
        longer = record.delta_s + 0.25 * (self.runs[script] - 1)
        future = Future()
        future.set_result(dataclasses.replace(record, delta_s=longer))
        return future


def _hooks(folder, sandbox, policy=None):
    table = Executions(folder, {})
    real = helper.hooks(policy, execute=sandbox.execute)
    return TableRuns(table, VIRTUAL.runs).hooks(real)


def _script(score, seconds):
    text = helper.answer(score, seconds)
    return text.split("```python\n")[1].split("```")[0].encode()


def test_an_unknown_script_runs_as_often_as_asked_and_never_again(tmp_path):
    sandbox = Sandbox()
    hooks, script = _hooks(tmp_path / "t", sandbox), _script(0.75, 2.5)
    for name in ("a", "b"):
        record = hooks.execute(name, script).result(10)
        assert (record.run_id, record.status) == (name, "ok")
        assert record.delta_s == 2.5 + 0.125  # the mean of two
        assert hooks.grade(record).score == 0.75
    # Comments do not make another program; another process finds the rows.
    other = _hooks(tmp_path / "t", sandbox)
    assert other.execute("c", b"# other\n" + script).result(10).delta_s == 2.625
    assert sandbox.runs == {script: 2}


@pytest.mark.parametrize("failure", ["nonzero_exit", "timeout", "missing"])
def test_a_failure_is_an_outcome_like_another(tmp_path, failure):
    sandbox = Sandbox()
    hooks, script = _hooks(tmp_path / "t", sandbox), _script(failure, 3.0)
    first = hooks.execute("a", script).result(10)
    again = hooks.execute("b", script).result(10)
    assert first.status == again.status == {"missing": "ok"}.get(failure, failure)
    assert again.submission_bytes is None
    assert sandbox.runs[script] == 2


def test_what_the_machinery_lost_is_not_kept(tmp_path):
    sandbox = Sandbox()
    hooks, script = _hooks(tmp_path / "t", sandbox), _script("sandbox_error", 1.0)
    for name in ("a", "b"):
        assert hooks.execute(name, script).result(10).status == "sandbox_error"
    assert sandbox.runs[script] == 2
    assert (tmp_path / "t" / ROWS).read_bytes() == b""


def test_equal_scripts_at_one_time_are_measured_once(tmp_path):
    sandbox, gate = Sandbox(), threading.Event()
    pool = ThreadPoolExecutor(8)

    def slow(run_id, script):
        def work():
            assert gate.wait(10)
            return sandbox.execute(run_id, script).result()

        return pool.submit(work)

    table = Executions(tmp_path / "t", {})
    hooks = TableRuns(table, 2).hooks(helper.hooks(None, execute=slow))
    script = _script(0.6, 1.0)
    futures = [hooks.execute(str(n), script) for n in range(6)]
    gate.set()
    assert {future.result(10).delta_s for future in futures} == {1.125}
    assert sandbox.runs[script] == 2


def test_the_usual_outcome_counts_and_calm_runs_do():
    def row(status, seconds, *, contended=False):
        record = helper.run_record("x", _script(0.6, seconds)).to_dict()
        more = {"contended": contended, "out": "", "err": "", "grade": None}
        return record | more | {"status": status, "program": "x"}

    rows = [row("timeout", 60.0), row("ok", 1.0), row("ok", 3.0, contended=True)]
    record, _ = mean_of("run", rows)
    assert (record.status, record.delta_s) == ("ok", 1.0)
    assert record.slot == SlotUse(contended=False)
    record, _ = mean_of("run", rows[2:])
    assert (record.delta_s, record.slot.contended) == (3.0, True)


def _run(folder, table, steps, *, stop_after=None, sandbox=None):
    folder.mkdir(exist_ok=True)
    sandbox = sandbox or Sandbox()
    kept = helper.Unsalted(folder)
    hooks = _hooks(table, sandbox, kept)
    spec = helper.spec(checkpoint_every=2, virtual=VIRTUAL)
    with Loop(folder, spec, hooks, resume=True) as loop:
        run([loop], Budget(steps=min(steps, stop_after or steps)))
    return sandbox


def _numbers(folder):
    rows = helper.records(folder, "metrics.jsonl")
    return [{k: v for k, v in row.items() if k != "finished_at"} for row in rows]


def test_seconds_are_a_function_of_the_records(tmp_path):
    sandbox = _run(tmp_path / "a", tmp_path / "t", 6)
    # A second run finds all of it, and its clock shows the same.
    again = _run(tmp_path / "b", tmp_path / "t", 6)
    assert sandbox.runs
    assert not again.runs
    assert _numbers(tmp_path / "a") == _numbers(tmp_path / "b")
    seconds = [row["seconds"] for row in _numbers(tmp_path / "a")]
    assert all((s["sample"], s["update"]) == (0.3, 0.5) for s in seconds)
    attempts = helper.records(tmp_path / "a")
    assert all(r["generation_s"] == pytest.approx(0.3 / 6) for r in attempts)
    # Stopped after each step, it is the same run.
    for step in range(1, 7):
        _run(tmp_path / "c", tmp_path / "t", 6, stop_after=step)
    assert _numbers(tmp_path / "c") == _numbers(tmp_path / "a")


def test_a_replay_of_it_needs_no_table(tmp_path):
    _run(tmp_path / "a", tmp_path / "t", 4)
    (tmp_path / "b").mkdir()
    policy = helper.Unsalted(tmp_path / "b")

    def never(*_):
        raise AssertionError("a replay executes nothing")

    hooks = helper.hooks(policy, execute=never, grade=never)
    spec = helper.spec(checkpoint_every=2, virtual=VIRTUAL)
    with Loop(tmp_path / "b", spec, hooks, replay=tmp_path / "a") as loop:
        run([loop], Budget(steps=4))
    assert _numbers(tmp_path / "b") == _numbers(tmp_path / "a")


def test_an_experiment_from_a_table_says_so(tmp_path, tmp_path_factory, capsys):
    cache = shared_cache(tmp_path_factory)
    changes = {"executions": f"table:{tmp_path / 'table'}", "table_runs": 1}
    first = mle_run_help.Experiment(tmp_path / "a", cache, **changes)
    code, text = first.launch()
    assert code == 0
    assert "time    virtual: sample" in text
    jobs = len(first.pools[0].jobs)
    again = mle_run_help.Experiment(tmp_path / "b", cache, **changes)
    assert again.launch()[0] == 0
    private = 2 * len(first.settings.arms)  # at most: private tests are real runs
    assert len(again.pools[0].jobs) <= private < jobs
    config = json.loads((tmp_path / "a" / "config.json").read_text())["config"]
    assert config["virtual"]["table"] == str(tmp_path / "table")
    assert "+table" in (tmp_path / "a" / "result.csv").read_text()
    assert any("clock is virtual" in text for text in cautions(load([tmp_path / "a"])))
    other = mle_run_help.Experiment(
        tmp_path / "c", cache, **changes | {"wall_limit": 5.0}
    )
    assert other.launch()[0] == 1
    assert "wall_s 60.0, here 5.0" in capsys.readouterr().err


def test_a_declared_second_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match="sampling_s must be finite"):
        mle_run_help.settings(executions="table:t", declared_sampling=-1.0)
