"""`python -m experiments.mle_bench`: what it prints, and its exit codes."""

import os
import subprocess
import sys

import command_flags
import pytest
from absl.testing import flagsaver
from grader_cases import cases, content
from repo_paths import ROOT

from experiments import cli

COMMAND = "experiments.mle_bench"
mle_bench = command_flags.load(COMMAND)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command line in this process: code, output, errors."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments):
        with flagsaver.flagsaver(), pytest.raises(SystemExit) as stop:
            cli.run(mle_bench.main, ["prog", *arguments], sections=mle_bench.SECTIONS)
        printed = capsys.readouterr()
        return stop.value.code or 0, printed.out, printed.err.strip()

    return run


@pytest.fixture
def process(tmp_path):
    """The same as a user runs it."""

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", COMMAND, *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
            check=False,
        )
        return done.returncode, done.stdout, done.stderr.strip()

    return run


@pytest.fixture
def files(tmp_path):
    """The spooky-author cases as files; returns a function name -> path."""
    for name in ("good.csv", "nan.csv", "answers.csv"):
        (tmp_path / name).write_bytes(content("spooky-author", name))
    return lambda name: str(tmp_path / name)


def test_list(process):
    code, out, err = process("--list")
    lines = out.splitlines()
    assert code == 0
    assert err == ""
    assert len(lines) == 1 + 22 + 2
    assert lines[0].split()[:3] == ["task", "better", "metric"]
    taxi = next(line for line in lines if line.startswith("nyc-taxi"))
    assert "lower" in taxi
    assert "root mean squared error" in taxi
    assert "not there" in taxi
    assert sum("not there" in line for line in lines) == 22


def test_grade_a_valid_submission(command, files):
    case = next(c for c in cases() if c.id == "spooky-author/good.csv")
    code, out, _ = command(
        "--task=spooky-author",
        f"--grade={files('good.csv')}",
        f"--answers={files('answers.csv')}",
    )
    assert code == 0
    printed = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert float(printed["score"]) == pytest.approx(case.score, abs=1e-9)
    assert 0 < float(printed["gain"].split()[0]) < 1
    assert printed["medal"].startswith("none, below")


def test_grade_an_invalid_submission(command, files):
    code, out, _ = command(
        "--task=spooky-author",
        f"--grade={files('nan.csv')}",
        f"--answers={files('answers.csv')}",
    )
    assert code == 1
    assert "invalid  the probabilities of each row must sum to 1" in out
    assert "score" not in out


def test_a_mistake_is_one_line_of_the_process(process):
    code, out, err = process("--task=spoky", "--grade=x.csv")
    assert (code, out) == (2, "")
    assert "did you mean spooky-author?" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to do: give --list"),
        (["--lst"], "Unknown command line flag 'lst'"),
        (["--grade=x.csv"], "--grade needs --task=NAME"),
        (["--grade=x.csv", "--task=spoky"], "did you mean spooky-author?"),
        (["--show-prompt"], "--show_prompt needs --task=NAME"),
        (["--grade=x", "--task=pizza", "--answers=none"], "no answers file none"),
        (["--task=pizza", "--show-prompt", "--size=huge"], "size"),
        (
            ["--task=pizza", "--show-prompt", "--data=mlebench"],
            "run `mlebench prepare -c random-acts-of-pizza`",
        ),
        (
            ["--task=pizza", "--show-prompt", "--data=mlebench", "--data-dir=nowhere"],
            "--data-dir nowhere",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(command, arguments, words):
    code, out, err = command(*arguments)
    assert code == 2
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1


def test_half_prepared_data_are_not_silently_replaced(command, tmp_path):
    folder = tmp_path / "cache" / "mle-bench" / "data" / "random-acts-of-pizza"
    (folder / "raw").mkdir(parents=True)
    code, _, err = command("--task=pizza", "--show-prompt")
    assert code == 2
    assert "half-prepared (it was downloaded but not prepared)" in err
    code, out, _ = command("--list")
    pizza = next(line for line in out.splitlines() if line.startswith("pizza"))
    assert code == 0
    assert "half-prepared" in pizza


def test_show_prompt_and_grade_on_synthetic_data(command, tmp_path):
    code, out, err = command(
        "--task=spooky-author", "--show-prompt", "--prompt-style=compact"
    )
    assert code == 0
    assert "synthetic data, size small, seed 0" in err
    assert out.count("Task spooky-author:") == 2
    assert "Previous script: score 1.09" in out
    assert "shutil.copy" in out
    sample = next((tmp_path / "cache").rglob("validation/public/sample_submission.csv"))
    code, out, _ = command("--task=spooky-author", f"--grade={sample}")
    assert code == 0
    assert "gain     0 over the sample's 1.09" in out
    assert "these data are synthetic" in out


def test_a_reader_that_leaves_early_is_no_error(tmp_path):
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "experiments.mle_bench", "--list"],
            stdout=write,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            check=False,
        )
    finally:
        os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""
