"""`rpg-tasks`: what it prints, and its exit codes."""

import os
import subprocess
import sys

import pytest
import toy_task
from grader_cases import content
from repo_paths import ROOT
from synthetic_helpers import SHORTS

from rpg_tasks import registry
from rpg_tasks.__main__ import main


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command line in this process: code, output, errors."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "_registered", [])

    def run(*arguments):
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err.strip()

    return run


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy task's name; the environment says where it is."""
    monkeypatch.setenv("RPG_TASKS_PATH", str(toy_task.write(tmp_path)))
    return toy_task.SHORT


def test_list_and_show(command, toy):
    code, out, _ = command("list")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()[1:24]]
    assert names == [*SHORTS, toy]
    assert out.splitlines()[23].split()[-2:] == ["-", "-"]
    code, out, _ = command("show", "siim-isic")
    assert code == 0
    assert "TFRecords of the real data hold the target" in out
    assert "synthetic data, 1500 + 400 rows, images 32x32" in out
    assert "gold 0.9455" in out
    code, out, _ = command("show", toy)
    assert code == 0
    assert "MLE-Bench   no" in out
    assert "a batch is on one side" in out


def test_prepare_prompt_grade(command, toy, tmp_path):
    cache = f"--cache-dir={tmp_path / 'own'}"
    code, out, _ = command("prepare", toy, cache, "--seed=3")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "synthetic data, size small, seed 3"
    paths = dict(line.split(maxsplit=1) for line in lines[1:])
    assert paths["sample"].startswith(str(tmp_path / "own"))
    code, out, err = command("prompt", toy, cache, "--style=compact")
    assert code == 0
    assert out.count("Task toy-regression:") == 2
    assert "seed 0" in err
    code, out, _ = command("grade", toy, paths["sample"], cache, "--seed=3")
    assert code == 0
    assert "gain     0 over the sample's" in out
    assert "medal" not in out
    options = ("--split=test", "--seed=3", cache)
    code, out, _ = command("grade", toy, paths["test_answers"], *options)
    assert code == 0
    assert "score    0\n" in out
    assert "gain     1 over" in out


def test_grade_with_answers_of_ones_own(command, tmp_path):
    for name in ("good.csv", "nan.csv", "answers.csv"):
        (tmp_path / name).write_bytes(content("spooky-author", name))
    answers = f"--answers={tmp_path / 'answers.csv'}"
    code, out, _ = command("grade", "spooky-author", f"{tmp_path}/good.csv", answers)
    assert code == 0
    assert "medal    none, below the leaderboard's median" in out
    code, out, _ = command("grade", "spooky-author", f"{tmp_path}/nan.csv", answers)
    assert code == 1
    assert "invalid  the probabilities of each row must sum to 1" in out


def test_check_takes_a_folder_or_a_name(command, tmp_path):
    folder = toy_task.write(tmp_path) / toy_task.NAME
    code, out, _ = command("check", str(folder))
    assert code == 0
    assert "public bytes do not depend on hidden fields" in out
    code, out, _ = command("check", "spoky")
    assert code == 1
    assert "did you mean spooky-author?" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "spoky"], "rpg-tasks: there is no task 'spoky': did you mean"),
        (["prepare", "pizza", "--data=mlebench"], "mlebench prepare -c random-acts"),
        (["grade", "pizza", "x.csv", "--answers=none"], "no answers file none"),
        (["prepare", "pizza", "--seed=-1"], "seed must not be negative"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(command, arguments, words):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_wrong_options_are_explained_by_the_parser(command):
    for arguments in ([], ["lst"], ["prepare", "pizza", "--size=huge"]):
        with pytest.raises(SystemExit) as stop:
            command(*arguments)
        assert stop.value.code == 2


def test_listing_is_light_and_a_reader_may_leave_early(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    code = (
        "import sys; from rpg_tasks.__main__ import main; main(['list']);"
        "heavy = ('numpy', 'pandas', 'sklearn', 'PIL', 'jax', 'experiments');"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=True,
    )
    assert done.stderr.strip() == "[]"
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rpg_tasks", "list"],
            stdout=write,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            check=False,
        )
    finally:
        os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""
