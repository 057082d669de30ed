"""python -m experiments.report: what it prints, what it refuses, unfinished runs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import report_help as helper
from absl import flags
from absl.testing import flagsaver
from repo_paths import ROOT

from experiments import cli
from experiments import report as command
from experiments.config.errors import LedgerError
from experiments.reporting.build import build
from experiments.reporting.load import load
from experiments.reporting.runs import ReportError

TASK = "tabular-2022"


@pytest.fixture(autouse=True)
def parsed():
    with flagsaver.flagsaver():
        flags.FLAGS(["report"])
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command") / "run"
    return helper.make_run(
        folder, tasks=(TASK,), arms=("rpg", "vanilla"), seeds=(0, 1),
        steps=3, chains=4,
    )  # fmt: skip


@pytest.fixture
def run(finished, tmp_path):
    """A copy to break."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def undrawn():
    with helper.undrawn():
        yield


def folder_of(run, arm="rpg", seed=0, task=TASK):
    return run / task / arm / f"seed-{seed}"


def change(path, **changes):
    content = json.loads(path.read_text())
    for name, value in changes.items():
        at = content["config"]
        *parents, last = name.split("__")
        for key in parents:
            at = at[key]
        at[last] = value
    path.write_text(json.dumps(content))


def test_as_a_user(finished, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "experiments.report", str(finished), "--out",
         str(tmp_path / "out")],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no verdict" in done.stdout.splitlines()[0]
    assert "synthetic" in done.stdout
    assert "Best score at equal budgets, total clock" in done.stdout
    assert str(tmp_path / "out" / "report.html") in done.stdout
    for name in ("report.html", "tables.md", "arms.csv", "curves.csv", "rates.png"):
        assert (tmp_path / "out" / name).stat().st_size > 0, name
    assert done.stderr == ""


def test_words_that_are_folders():
    split = cli.split_folders
    assert split(["x", "a", "--out=o", "b"]) == (["a", "b"], ["x", "--out=o"])
    assert split(["x", "--out", "o", "a"]) == (["a"], ["x", "--out", "o"])
    assert split(["x", "--curve", "last", "a"])[0] == ["a"]
    assert split(["x", "--resume", "a"])[0] == ["a"]
    assert split(["x", "--", "--odd"]) == (["--odd"], ["x"])


def refused(*folders):
    with pytest.raises(cli.UsageError) as caught:
        command.main([str(f) for f in folders])
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_usage(tmp_path, run):
    assert "name the folder" in refused()
    assert "there is no folder" in refused(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "no finished step is on record" in refused(tmp_path / "empty")
    for path in run.glob("*/*/*/attempts.jsonl"):
        path.unlink()
    assert "no finished step is on record" in refused(run)
    (run / "config.json").write_text("{")
    assert "config.json cannot be read" in refused(run)


def test_out_is_a_file(run, tmp_path):
    (tmp_path / "file").write_text("")
    with flagsaver.flagsaver(out=str(tmp_path / "file")):
        assert "choose another --out" in refused(run)


@pytest.mark.parametrize("name", ["attempts.jsonl", "metrics.jsonl", "final.jsonl"])
def test_a_broken_line_is_named(run, name):
    path = folder_of(run) / name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"{broken\n", *lines[1:]]))
    text = refused(run)
    assert str(path) in text
    assert f"byte {len(lines[0])}" in text


def test_a_record_that_is_none_of_ours(run):
    path = folder_of(run) / "attempts.jsonl"
    path.write_bytes(path.read_bytes() + b'{"step": 1, "chain": 0}\n')
    assert "a record without run_id" in refused(run)


def test_a_torn_last_line_is_left_out(run):
    path = folder_of(run) / "attempts.jsonl"
    whole = load([run]).runs[0]
    path.write_bytes(path.read_bytes() + b'{"run_id": "to')
    again = load([run]).runs[0]
    assert again.attempts.run_id == whole.attempts.run_id


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"protocol__rule__clock": "execution"}, "protocol.rule.clock"),
        ({"protocol__chains": 99}, "protocol.chains"),
        ({"baseline": 0.4}, "baseline"),
        ({"limit_s": 61.0}, "limit_s"),
        ({"arm__gradient": False}, "arm.gradient"),
    ],
)
def test_one_experiments_runs_that_differ_are_not_averaged(run, changes, key):
    change(folder_of(run, seed=1) / "config.json", **changes)
    text = refused(run)
    assert key in text
    assert "make a report of each" in text


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"model": "other"}, "model is 'tiny' and 'other'"),
        ({"data_seed": 5}, "data_seed is 0 and 5"),
        ({"sources": ["mlebench"]}, "sources.tabular-2022"),
        ({"budget__steps": 4}, "budget.steps"),
    ],
)
def test_runs_that_differ_are_not_averaged(finished, run, changes, key):
    change(run / "config.json", **changes)
    assert key in refused(finished, run)


def test_the_same_seed_does_not_count_twice(finished, run):
    text = refused(finished, run)
    assert "would count twice" in text
    assert "would count twice" in refused(finished, folder_of(finished))


def test_runs_together(finished, tmp_path):
    """Seeds of two runs are one experiment."""
    parts = []
    for keep, drop in ((0, 1), (1, 0)):
        part = Path(shutil.copytree(finished, tmp_path / f"seed{keep}"))
        for path in part.glob(f"*/*/seed-{drop}"):
            shutil.rmtree(path)
        change(part / "config.json", seeds=[keep])
        parts.append(part)
    whole, joined = load([finished]), load(parts)
    assert joined.unfinished == []
    assert [c.name for c in joined.runs] == [c.name for c in whole.runs]
    for a, b in zip(whole.runs, joined.runs, strict=True):
        assert a.attempts.run_id == b.attempts.run_id


def test_one_run_alone_knows_its_experiment(finished, undrawn, tmp_path):
    report = build(folder_of(finished), tmp_path / "out")
    text = report.page.read_text(encoding="utf-8")
    assert "Only rpg was run" in report.headline
    assert "The data are synthetic" in text
    assert report.experiment.unfinished == []
    away = shutil.copytree(folder_of(finished), tmp_path / "away")
    assert "The data are synthetic" not in build(
        away, tmp_path / "out2"
    ).page.read_text(encoding="utf-8")


def test_unfinished_runs_are_reported_as_such(run, undrawn):
    """One not begun, one stopped within a step, one without metrics, one alone."""
    shutil.rmtree(folder_of(run, "vanilla", 1))
    (folder_of(run, "vanilla", 0) / "attempts.jsonl").unlink()
    attempts = folder_of(run) / "attempts.jsonl"
    lines = attempts.read_text().splitlines(keepends=True)
    attempts.write_text("".join(lines[:-1]))
    metrics = folder_of(run) / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    (folder_of(run, "rpg", 1) / "metrics.jsonl").unlink()
    (run / TASK / "task.json").write_text('{"status": "failed", "reason": "a <b>"}')
    report = build(run)
    said = report.experiment.unfinished
    assert f"{TASK}/vanilla/seed-1: no finished step yet" in said
    assert f"{TASK}/vanilla/seed-0: no finished step yet" in said
    assert f"{TASK}/rpg/seed-0: 2 steps, 67% of its budget" in said
    assert f"{TASK}/rpg/seed-1: no finished step yet" in said
    assert f"{TASK}: failed: a <b>" in said
    text = report.page.read_text(encoding="utf-8")
    assert "Some runs are unfinished" in text
    assert "a &lt;b&gt;" in text
    # Of the third step the fast scripts alone were over.
    (kept,) = report.experiment.runs
    assert set(kept.attempts.step) == {0, 1}
    assert (len(kept.attempts), kept.attempts.left_out) == (8, 3)
    (run / TASK / "task.json").write_text('{"status": "done"}')
    assert not [line for line in load([run]).unfinished if "budget" in line]


def test_a_step_that_was_stopped_counts_nowhere(finished, run, undrawn):
    """A fast and perfect script, all that was over of the next step."""
    before = build(finished, run.parent / "before")
    for path in run.glob("*/rpg/*/attempts.jsonl"):
        lines = path.read_text().splitlines()
        record = json.loads(next(line for line in lines if '"valid": true' in line))
        record |= {"run_id": "next", "step": 3, "chain": 0, "score": 1.0}
        record |= {"execution_s": 0.1, "delta_s": 0.2, "reward": 1.0, "value": 1.0}
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
    after = build(run)
    for one, two in zip(before.sheets, after.sheets, strict=True):
        assert two.rows == one.rows, one.name
    assert after.headline == before.headline
    assert b"next" not in (run / "report" / "attempts.csv").read_bytes()


def test_an_arm_without_measured_attempts(run, undrawn):
    for path in run.glob("*/vanilla/*/attempts.jsonl"):
        lines = []
        for line in path.read_text().splitlines():
            lost = {"status": "infrastructure", "reason": "a cable was cut"}
            lost |= dict.fromkeys(("score", "value", "reward", "delta_s"))
            lines.append(json.dumps(json.loads(line) | lost | {"valid": False}) + "\n")
        path.write_text("".join(lines))
        path.with_name("final.jsonl").unlink()
    (said,) = build(run).contests
    assert said == (
        f"{TASK}: no measured attempts of vanilla, so the arms cannot be compared."
    )


def test_nothing_valid_nothing_learned(run, undrawn):
    """Every attempt failed, or was lost: numbers are dashes, not errors."""
    for at, path in enumerate(sorted(run.glob("*/*/*/attempts.jsonl"))):
        lines = []
        for line in path.read_text().splitlines():
            record = json.loads(line) | {"score": None, "valid": False}
            record |= {"status": "failed", "reason": "boom", "value": 0.0}
            record |= {"reward": 0.0, "delta_s": record["delta_s"] or 1.0}
            record["execution_s"] = record.get("execution_s") or 1.0
            if at == 0:
                record |= {"status": "infrastructure", "delta_s": None, "value": None}
                record["reward"] = None
            lines.append(json.dumps(record) + "\n")
        path.write_text("".join(lines))
        path.with_name("final.jsonl").unlink()
    report = build(run)
    text = report.page.read_text(encoding="utf-8")
    assert "No private test was scored" in text
    assert "neither rpg nor vanilla earned any reward" in report.rates
    assert "nan" not in text.lower().replace("tenant", "")


def test_library_errors_are_one_line(run):
    (folder_of(run) / "attempts.jsonl").write_text("[]\n")
    with pytest.raises(LedgerError):
        load([run])
    with pytest.raises(ReportError, match="needs the folder"):
        load([])
