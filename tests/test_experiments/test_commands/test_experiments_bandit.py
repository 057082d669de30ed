"""python -m experiments.bandit as a user runs it: results, resume, one-line errors."""

import contextlib
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


def test_progress_off_a_terminal_is_a_line_a_cell(finished):
    _, done = finished
    lines = done.stderr.strip().splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "1 of 2 cells",
        "2 of 2 cells",
    ]
    assert "\r" not in done.stderr


def test_untuned_agents_are_called_so(finished):
    out, done = finished
    assert "default" in done.stdout
    assert "tuned" not in done.stdout
    assert {row["selection"] for row in read_csv(out / "result.csv")} == {"default"}


def test_the_record_holds_no_local_state(finished):
    out, _ = finished
    text = (out / "config.json").read_text()
    assert str(out.parent) not in text
    assert str(ROOT) not in text
    assert os.path.expanduser("~") not in text or os.path.expanduser("~") == "/"
    assert "workers" not in json.loads(text)["config"]


def test_resume_of_a_finished_run_changes_nothing(finished):
    out, _ = finished
    before = (out / "result.csv").read_bytes()
    cell = next((out / "cells").glob("*uniform.npz"))
    stamp = cell.stat().st_mtime_ns
    done = run(*SMALL, f"--out={out}", "--resume")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "resuming: 2 of 2 cells are done\n"
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
    ("--arms=100001", "arms"),
    ("--contexts=-1", "contexts"),
    ("--contexts=4,5000", "contexts"),
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


def dry_run(capsys, *flags):
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as stop:
        cli.run(study.main, ["prog", *flags, "--dry_run"])
    assert not stop.value.code
    return capsys.readouterr().out


def test_dry_run_prints_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "none"
    text = dry_run(capsys, "--env=all", "--arms=5,10", f"--out={out}")
    assert "['E1', 'E2', 'E3', 'E4']" in text
    assert "contexts = 4\n" in text
    assert not out.exists()


def test_the_large_study_is_one_command_with_an_estimate(capsys):
    sizes = ("--env=all", "--arms=70,100,130,160", "--contexts=8,16,32,64")
    text = dry_run(capsys, *sizes, "--agents=npg-niw,cucb-tuned", "--tune=paper")
    assert "contexts = [8, 16, 32, 64]" in text
    assert f"cells = {4 * 4 * 4 * 2}" in text
    assert " h on " in text
    fine = dry_run(capsys, *sizes, "--agents=npg-niw,cucb-tuned", "--tune=fine")

    def trial_steps(text):
        return int(text.partition("estimate: ")[2].split(" ")[0].replace(",", ""))

    assert trial_steps(fine) > 2 * trial_steps(text)


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


ENV_FILE = """
from bandit import envs
from bandit.registry import EnvSpec, register_env

DESK = envs.env_of("E4", [[0.5, 0.9]], [[0.6, 5.0]])
register_env(EnvSpec("desk", "help desk", lambda arms, contexts: DESK, size=(2, 1)))
"""


def test_an_environment_is_one_small_file(tmp_path):
    (tmp_path / "desk.py").write_text(ENV_FILE)
    flags = ["--agents=uniform", "--steps=50", "--trials=2"]
    flags += [f"--env={tmp_path / 'desk.py'}", f"--out={tmp_path / 'run'}"]
    done = run(*flags)
    assert done.returncode == 0, done.stderr
    assert "desk, K = 2, X = 1" in done.stdout
    (tmp_path / "desk.py").write_text(ENV_FILE + "# changed")
    one_line(run(*flags, "--resume"), "config")
    one_line(run(*flags, "--arms=3"), "--arms=3: the environment has 2")
    (tmp_path / "none.py").write_text("")
    one_line(run(f"--env={tmp_path / 'none.py'}"), "registers no environment")
    one_line(run(f"--env={tmp_path / 'gone.py'}"), "there is no file")


def test_logged_decisions_are_replayed_or_refused(tmp_path):
    log = tmp_path / "log.csv"
    lines = [f"x,{'ab'[k % 2]},{k % 3},{1 + k % 5}" for k in range(300)]
    log.write_text("context,arm,reward,seconds\n" + "\n".join(lines) + "\n")
    flags = [f"--env={log}", "--agents=uniform", "--trials=3", "--steps=50"]
    one_line(run(*flags), "no column 'propensity'")
    done = run(*flags, "--propensity=uniform", f"--out={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert "best reward rate" in done.stdout
    assert read_csv(tmp_path / "run" / "log_agents.csv")[0]["agent"] == "uniform"
    flags += ["--propensity=uniform", "--logged=resample", f"--out={tmp_path / 'on'}"]
    done = run(*flags)
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "on" / "result.csv")[0]["num_arms"] == 2


@contextlib.contextmanager
def started(*flags):
    """The command at work; whatever happens, it does not outlive the test."""
    with subprocess.Popen(
        command(*flags), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_ctrl_c_does_not_wait_for_a_compilation(tmp_path):
    """C-UCB takes many seconds to compile and seconds a chunk; nobody waits for it."""
    out = tmp_path / "run"
    flags = ["--env=E3", "--arms=40", "--agents=cucb-tuned", f"--out={out}"]
    with started(*flags) as process:
        deadline = time.monotonic() + 200
        while not (out / "cells").exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "--resume" in stderr.decode()
    # Within 2 s on an idle machine.
    assert time.monotonic() - began < 20


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_killed_runs_resume_to_the_same_result(finished, tmp_path, how):
    """Stopped in the middle, then resumed: the table of the uninterrupted run."""
    out = tmp_path / "run"
    flags = [*SMALL, f"--out={out}"]
    with started(*flags) as process:
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
