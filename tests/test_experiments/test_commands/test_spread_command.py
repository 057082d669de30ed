"""python -m experiments.spread: recorded runs, files, samples; what it refuses."""

import csv
import dataclasses
import os
import subprocess
import sys

import command_flags
import mle_run_help as run_help
import numpy as np
import pytest
import report_help as helper
from absl.testing import flagsaver
from repo_paths import ROOT
from synthetic_helpers import shared_cache

from experiments import cli
from experiments.config.errors import UsageError
from experiments.config.options import Options
from experiments.running import untrained

NAME = "experiments.spread"
TASK = "tabular-2022"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return helper.make_run(
        tmp_path_factory.mktemp("spread") / "run", tasks=(TASK,),
        arms=("vanilla", "search-only"), seeds=(0, 1), steps=20, chains=4, final=False,
    )  # fmt: skip


def command(*words):
    """(exit code, words) of the command in this process."""
    module = command_flags.load(NAME)
    with command_flags.active(NAME), flagsaver.flagsaver():
        folders, rest = cli.split_folders(["spread", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.run(lambda: module.main(folders), rest)
    return stop.value.code or 0


def refused(capsys, *words):
    assert command(*words) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    return text


def test_as_a_user(runs, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", NAME, str(runs), f"--out={tmp_path / 'w.csv'}"],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith(f"{TASK} (search-only): W = ")
    assert "settled" in first
    assert "A simulation predicts" in done.stdout
    with (tmp_path / "w.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["task"], row["arm"]) == (TASK, "search-only")
    assert f"W = {float(row['W']):.1f} [" in first
    assert done.stderr == ""


def test_arms_to_choose(runs, capsys):
    assert command(runs, "--arm=vanilla,search-only") == 0
    text = capsys.readouterr().out
    assert "of 2 pairs of task and arm" in text
    assert f"{TASK} (vanilla)" in text
    assert command(runs, "--arm=all") == 0
    assert "vanilla" in capsys.readouterr().out
    assert "choose from vanilla, search-only" in refused(capsys, runs, "--arm=rpg")


def test_a_file(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = [f"{np.exp(rng.standard_normal())},{rng.random()}" for _ in range(60)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["sec,loss", *lines]))
    flags = ("--seconds_column=sec", "--score_column=loss", "--lower_is_better")
    assert command(f"--csv={path}", *flags, f"--out={tmp_path / 'o.csv'}") == 0
    assert capsys.readouterr().out.startswith("a: W = ")
    assert (tmp_path / "o.csv").exists()
    assert "no column 'seconds'" in refused(capsys, f"--csv={path}")
    path.write_text("\n".join(["seconds,score", *lines[:9]]))
    assert command("--csv", path) == 0
    out = capsys.readouterr().out
    assert "no verdict: 9 valid attempts are too few, W needs about 31 more" in out
    assert command("--csv", path, f"--out={tmp_path / 'none' / 'o.csv'}") == 1


def test_what_is_refused(runs, tmp_path, capsys):
    for words in ((), (runs, "--csv=a.csv"), (runs, "--task=whale")):
        assert "name one source" in refused(capsys, *words)
    assert "there is no folder" in refused(capsys, tmp_path / "none")
    assert "--resume needs --out=DIR" in refused(capsys, "--resume")
    assert "no run in" in refused(capsys, "--resume", f"--out={tmp_path / 'none'}")
    assert "whales" in refused(capsys, "--task=whales")
    assert "holds a run already" in refused(capsys, "--task=whale", f"--out={runs}")


def test_the_configuration_is_shown(capsys):
    words = ("--task=whale", "--model=random-edits", "--samples=20", "--dry_run")
    assert command(*words) == 0
    text = capsys.readouterr().out
    assert '"steps": 3' in text
    assert '"name": "independent"' in text


def options(**changes):
    return Options(**{"task": ("whale",), "model": "random-edits"} | changes)


def test_settings_of_untrained_samples():
    found = untrained.settings_for(options(), 17)
    assert [arm.name for arm in found.arms] == ["independent"]
    assert (found.budget.steps, found.budget.seconds) == (3, None)
    assert (found.final, found.sources, found.size) == ("none", ("synthetic",), "small")
    with pytest.raises(UsageError, match="--samples=0"):
        untrained.settings_for(options(), 0)


class Faked:
    """The experiment's launch with a scripted policy and no sandbox."""

    def __init__(self, folder, cache, monkeypatch):
        self.fake = run_help.Experiment(folder, cache)
        monkeypatch.setattr(untrained, "open_experiment", self.open)
        monkeypatch.setattr(untrained, "launch", self.launch)

    def open(self, settings, places, *, resume):
        # The scripted policy writes scripts, not choices.
        self.fake.settings = dataclasses.replace(
            settings, style="compact", answer_form="whole-script"
        )
        self.fake.out = places.out
        return resume

    def launch(self, resume):
        return self.fake.launch(resume=resume)[0]


def test_samples_are_run_measured_and_gone_on_with(
    tmp_path, tmp_path_factory, monkeypatch, capsys
):
    folder = tmp_path / "run"
    Faked(folder, shared_cache(tmp_path_factory), monkeypatch)
    flags = (f"--task={TASK}", "--model=random-edits", f"--out={folder}")
    assert command(*flags, "--samples=16") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{TASK} (independent): no verdict: ")
    assert (folder / "spread.csv").exists()
    ledger = folder / TASK / "independent" / "seed-0" / "attempts.jsonl"
    before = run_help.lines(ledger)
    assert [r["parent"] for r in before] == [None] * 16
    assert "add --resume" in refused(capsys, *flags)
    assert command("--resume", f"--out={folder}", "--samples=24") == 0
    after = run_help.lines(ledger)
    assert len(after) == 24
    assert after[:16] == before
    assert command("--resume", f"--out={folder}") == 0
    assert len(run_help.lines(ledger)) == 24
    other = refused(capsys, "--resume", f"--out={folder}", "--task=whale")
    assert f"holds {TASK}" in other


def test_a_task_that_fails_is_said_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(untrained, "sample", lambda *_, **__: 1)
    (tmp_path / "run").mkdir()
    flags = ("--task=whale", "--model=random-edits", f"--out={tmp_path / 'run'}")
    assert command(*flags) == 1
    assert capsys.readouterr().err == ""
