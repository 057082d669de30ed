"""python -m experiments.bandit as a user runs it: results, resume, one-line errors."""

import json
import os
import signal
import subprocess
import sys
import time

import command_flags
import pytest
from absl.testing import flagsaver
from repo_paths import ROOT

from bandit.analysis import read_csv
from experiments import cli

COMMAND = "experiments.bandit"
study = command_flags.load(COMMAND)
SMALL = ["--env=E3", "--arms=3", "--contexts=2", "--steps=200", "--trials=4"]
SMALL += ["--agents=uniform,npg-cells", "--workers=1"]


def command(*flags, module="experiments.bandit"):
    return [sys.executable, "-m", module, *map(str, flags)]


def run(*flags, cwd=ROOT, **kwargs):
    return subprocess.run(
        command(*flags, **kwargs), cwd=cwd, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("bandit") / "run"
    done = run(*SMALL, f"--out={out}")
    assert done.returncode == 0, done.stderr
    return out, done


def test_a_run_leaves_its_records_and_says_where(finished):
    out, done = finished
    for name in (
        "config.json",
        "result.csv",
        "curves.csv",
        "regret_vs_arms.png",
        "regret_vs_arms.pdf",
        "regret_vs_time_K003.png",
    ):
        assert (out / name).stat().st_size > 0, name
    assert "Uniform" in done.stdout
    assert "result.csv" in done.stdout
    record = json.loads((out / "config.json").read_text())
    assert record["config"]["envs"] == ["E3"]
    assert record["versions"]["jax"]
    rows = read_csv(out / "result.csv")
    assert [row["agent"] for row in rows] == ["uniform", "npg-cells"]
    assert all(row["trials"] == 4 and row["steps"] == 200 for row in rows)


def test_resume_of_a_finished_run_changes_nothing(finished):
    out, _ = finished
    before = (out / "result.csv").read_bytes()
    cell = next((out / "cells").glob("*uniform.npz"))
    stamp = cell.stat().st_mtime_ns
    done = run(*SMALL, f"--out={out}", "--resume")
    assert done.returncode == 0, done.stderr
    assert "2 of 2" in done.stdout
    assert (out / "result.csv").read_bytes() == before
    assert cell.stat().st_mtime_ns == stamp


def one_line(done, *words):
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], lines[0]


def snapshot(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_another_configuration_or_no_resume_is_refused(finished):
    out, _ = finished
    before = snapshot(out)
    one_line(run(*SMALL, f"--out={out}"), "--resume")
    one_line(run(*SMALL, "--seed=5", f"--out={out}", "--resume"), "seed")
    assert snapshot(out) == before


BAD = [
    ("--env=E9", "E9"),
    ("--arms=0", "arms"),
    ("--contexts=-1", "contexts"),
    ("stray", "stray"),
    ("--env=", "env"),
    ("--arms=4,x", "x"),
    ("--contexts=two", "contexts"),
    ("--agents=nobody", "npg-niw"),
    ("--steps=0", "steps"),
    ("--trials=0", "trials"),
    ("--tune=always", "tune"),
    ("--seed=-1", "seed"),
    ("--nonsense=1", "nonsense"),
    ("--resume", "--out"),
]


@pytest.mark.parametrize(("flag", "word"), BAD[:1])
def test_bad_flags_are_one_line(flag, word):
    one_line(run(flag, "--dry_run"), word)


@pytest.mark.parametrize(("flag", "word"), BAD[1:])
def test_bad_flags_are_refused(flag, word, capsys):
    """The same path without a process of its own for each flag."""
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as stop:
        cli.run(lambda: study.resolve() and 0, ["prog", flag])
    assert stop.value.code == 2
    message = capsys.readouterr().err.strip()
    assert word in message
    assert "\n" not in message


def test_unwritable_out_is_one_line(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    one_line(run(*SMALL, f"--out={blocked}/run"), "cannot write")
    assert blocked.read_text() == "not a folder"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    one_line(run(*SMALL, f"--out={tmp_path}/full"), "not empty")


def test_dry_run_prints_and_writes_nothing(tmp_path):
    out = tmp_path / "none"
    done = run("--env=all", "--arms=5,10", f"--out={out}", "--dry_run")
    assert done.returncode == 0
    assert "['E1', 'E2', 'E3', 'E4']" in done.stdout
    assert not out.exists()


def test_another_package_called_bandit_is_named(tmp_path):
    (tmp_path / "bandit").mkdir()
    (tmp_path / "bandit" / "__init__.py").write_text("")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        command(*SMALL), cwd=tmp_path, capture_output=True, text=True, env=env
    )
    one_line(done, "checkout")


def test_commands_are_listed():
    done = run(module="experiments")
    assert done.returncode == 0
    assert "bandit" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_killed_runs_resume_to_the_same_result(finished, tmp_path, how):
    """Stopped in the middle, then resumed: the table of the uninterrupted run."""
    out = tmp_path / "run"
    flags = [*SMALL, f"--out={out}"]
    process = subprocess.Popen(
        command(*flags), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 200
    while not list(out.glob("cells/*uniform.npz")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(how)
    _, stderr = process.communicate(timeout=120)
    if how == signal.SIGINT:
        assert process.returncode in (0, 130)
        if process.returncode == 130:
            assert b"--resume" in stderr
    done = run(*flags, "--resume")
    assert done.returncode == 0, done.stderr

    def stable(path):
        return [
            {k: repr(v) for k, v in row.items() if not k.endswith("_seconds")}
            for row in read_csv(path)
        ]

    assert stable(out / "result.csv") == stable(finished[0] / "result.csv")
