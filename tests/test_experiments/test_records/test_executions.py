"""A table of executions: rows outlive kills, processes share it, facts must agree."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from repo_paths import ROOT, SUPPORT

from experiments.config.errors import LedgerError, UsageError
from experiments.config.reward_rule import RewardRule
from experiments.config.virtual import Virtual, table_of
from experiments.records.executions import ROWS, Executions
from experiments.records.virtual_time import step_seconds

FACTS = {"task": "one", "cpu": "this"}
PROGRAM = "ab" * 32


def _table(folder, **changes):
    return Executions(folder, FACTS | changes)


def _row(program=PROGRAM, seconds=1.0):
    return {"program": program, "delta_s": seconds}


def test_rows_are_found_by_all_who_have_it_open(tmp_path):
    first, second = _table(tmp_path / "t"), _table(tmp_path / "t")
    assert first.find(PROGRAM) == []
    first.add(_row(seconds=1.0), b"print(1)")
    second.add(_row(seconds=2.0), b"print(1)")
    second.add(_row("cd" * 32), b"print(2)")
    for table in (first, second, _table(tmp_path / "t")):
        assert [row["delta_s"] for row in table.find(PROGRAM)] == [1.0, 2.0]
    assert (tmp_path / "t" / "scripts" / f"{PROGRAM}.py").read_bytes() == b"print(1)"


def test_other_facts_are_refused_and_named(tmp_path):
    _table(tmp_path / "t").close()
    with pytest.raises(UsageError, match="cpu 'this', here 'another'"):
        _table(tmp_path / "t", cpu="another")
    with pytest.raises(UsageError, match="python None, here '3'"):
        _table(tmp_path / "t", python="3")


def test_a_torn_last_line_is_cut_off(tmp_path):
    table = _table(tmp_path / "t")
    table.add(_row(seconds=1.0), b"")
    with (tmp_path / "t" / ROWS).open("ab") as file:
        file.write(b'{"program": "ab')
    assert len(table.find(PROGRAM)) == 1
    table.add(_row(seconds=2.0), b"")
    assert [row["delta_s"] for row in table.find(PROGRAM)] == [1.0, 2.0]
    lines = (tmp_path / "t" / ROWS).read_text().splitlines()
    assert [json.loads(line)["delta_s"] for line in lines] == [1.0, 2.0]


def test_what_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="table of executions"):
        _table(tmp_path / "file")


_MEASURE = """
import sys, time
from pathlib import Path
from experiments.records.executions import Executions
table = Executions(Path(sys.argv[1]), {})
print("on", flush=True)
for number in range(int(sys.argv[2])):
    program = f"{number:064x}"
    with table.claim(program):
        if not table.find(program):
            time.sleep(float(sys.argv[3]))
            table.add({"program": program}, b"")
"""


def _measuring(folder, count, seconds):
    return subprocess.Popen(
        [sys.executable, "-c", _MEASURE, str(folder), str(count), str(seconds)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(SUPPORT)))},
        stdout=subprocess.PIPE,
    )


def test_processes_share_a_table_and_a_killed_one_holds_nothing_up(tmp_path):
    folder = tmp_path / "t"
    killed = _measuring(folder, 40, 0.02)
    killed.stdout.readline()
    others = [_measuring(folder, 40, 0.02) for _ in range(2)]
    time.sleep(0.3)
    killed.send_signal(signal.SIGKILL)
    for process in (killed, *others):
        process.communicate(timeout=60)
    assert [process.returncode for process in others] == [0, 0]
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    # Nothing is lost and nothing is there twice.
    assert sorted(row["program"] for row in rows) == [f"{n:064x}" for n in range(40)]


def test_a_step_lasts_until_its_last_script(tmp_path):
    def record(seconds, **more):
        return {"execution_s": seconds, "cpu_s": 10 * seconds} | more

    records = [record(3.0), record(1.0), record(1.5), record(9.0, repeat_of="x")]
    records += [{"execution_s": 0.0}, record(1.0)]
    virtual = Virtual("t", sampling_s=0.25, update_s=0.5, slots=2)
    found = step_seconds(virtual, RewardRule(), records, gradient=True)
    # Slots: 3, and 1 + 1.5 + 1 (what needs no script takes no time).
    assert found == {
        "sample": 0.25,
        "execute": 3.5,
        "grade": 0.0,
        "update": 0.5,
        "other": 0.0,
    }
    cpu = RewardRule(script_clock="cpu")
    found = step_seconds(virtual, cpu, records, gradient=False)
    assert (found["execute"], found["update"]) == (35.0, 0.0)


def test_what_is_asked_for_is_checked():
    assert table_of("real") is None
    assert table_of("table:some/folder") == "some/folder"
    for wrong in ("table:", "table", "virtual"):
        with pytest.raises(UsageError, match="real, or table:DIR"):
            table_of(wrong)
    for field, value in (("sampling_s", -1.0), ("update_s", float("nan")), ("runs", 0)):
        with pytest.raises(ValueError, match=field):
            Virtual("t", **{field: value})
