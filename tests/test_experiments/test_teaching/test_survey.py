"""The survey: what is asked and run, its numbers, its report."""

import csv
import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.teaching import survey, survey_report, survey_store
from experiments.teaching.inheritance import correlation, inheritance
from experiments.teaching.run_scripts import Outcome, placeless
from experiments.teaching.survey import Survey, changed_share, survey_tasks
from experiments.teaching.survey_summary import Sample, summarise
from experiments.teaching.writer import Answer


def _sample(script="a\nb\nc\nd", status="valid", gain=0.5, wall=1.0, **changes):
    fields = {
        "task": "insults",
        "kind": "base",
        "parses": True,
        "status": status,
        "gain": gain if status == "valid" else None,
        "score": 0.1 if status == "valid" else None,
        "wall_s": wall,
        "cpu_s": wall,
        "tokens": 10,
        "reason": "" if status == "valid" else "KeyError: 'x'",
        "changed": None,
        "script": script,
        "previous": "",
        "plan": "Plan: nothing.",
    }
    return Sample(**(fields | changes))


def test_reasons_do_not_tell_where_this_machine_keeps_its_packages():
    text = "cannot import name 'A' (/home/me/env/lib/site-packages/sklearn/a.py)"
    assert placeless(text) == "cannot import name 'A' (sklearn/a.py)"
    assert placeless("No such file: 'input/x.csv'") == "No such file: 'input/x.csv'"


def test_changed_share_counts_lines():
    assert changed_share("a\nb\nc\nd", "a\nb\nc\nd") == 0.0
    assert changed_share("a\nb\nc\nd", "a\nx\nc\nd") == 0.25
    assert changed_share("a\nb", "a\nb\nc\nd") == 0.5
    assert changed_share("a\nb", "c\nd") == 1.0


def _four():
    return [
        _sample("s1", gain=0.2, wall=1.0),
        _sample("s1", gain=0.4, wall=9.0),
        _sample("s2", status="failed", kind="improve", changed=0.25, previous="s"),
        _sample("", status="no_script", parses=False),
    ]


def test_summary_against_hand_counts():
    row = summarise("insults", _four())
    assert (row.samples, row.parse, row.run, row.valid) == (4, 0.75, 0.5, 0.5)
    # One script of four had been seen; answers without a script do not count.
    assert row.duplicates == 0.25
    assert row.best == pytest.approx(0.4)
    assert row.mean == pytest.approx(0.3)
    assert row.gain[1] == pytest.approx(0.3)
    assert row.spread == pytest.approx(8.6 / 1.4)
    assert (row.changed, row.edits) == (0.25, 1.0)


def test_report_round_trip_and_torn_line(tmp_path):
    run = {
        "config": {"model": "tiny", "data": "synthetic, small", "sandbox": "FULL"},
        "command": ["python", "-m", "experiments.survey"],
        "started": "2026-01-01T00:00:00Z",
        "machine": {"cpu": "some", "cores": 2},
    }
    (tmp_path / "config.json").write_text(json.dumps(run))
    known = survey_store.append(tmp_path, _four(), "insults", 0.35)
    survey_report.write(tmp_path, known)
    page = (tmp_path / "README.md").read_text()
    assert "4 samples: 75.0% parse" in page
    assert "on 1 of 1 tasks" in page
    assert "1 x `failed: KeyError`" in page
    with (tmp_path / "samples.jsonl").open("a") as file:
        file.write('{"task": "nyc-ta')
    assert list(survey_store.read(tmp_path).tasks) == ["insults"]
    with (tmp_path / "result.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["task"] for row in rows] == ["insults", "all"]
    assert float(rows[0]["cheap_reference"]) == 0.35


class FakeWriter:
    """Answers that say what was asked; the last of a batch holds no script."""

    def __init__(self):
        self.sizes = []

    def prompt(self, data, attempt=None):
        if attempt is None:
            return "base"
        assert 1 <= attempt.rank[0] <= attempt.rank[1]
        return f"improve {attempt.script}, {attempt.score}, {attempt.output}"

    def log_probs(self, prompts, texts):
        """A nat for every prompt whose script the answer shows."""
        pairs = zip(prompts, texts, strict=True)
        return np.array([float(prompt in text) for prompt, text in pairs])

    def write(self, task, prompts, parents, *, seed):
        assert task.short == "insults"
        assert [p is None for p in parents] == [t == "base" for t in prompts]
        self.sizes.append(len(prompts))
        scripts = [f"x = {seed + k}\n# {text}" for k, text in enumerate(prompts)]
        scripts[-1] = None
        return [
            Answer(f"Plan.\n{script}", script, 3, "" if script else "no block")
            for script in scripts
        ]


def _fake_runs(pool, data, scripts, *, wall_s=120.0):
    for script in scripts:
        number = int(script.split()[2])
        yield Outcome("insults", "valid", 0.5, number, 1.0, 1.0, "", script, "printed")


def test_a_task_is_asked_run_and_asked_to_be_improved(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "run_scripts", _fake_runs)
    task = SimpleNamespace(short="insults")
    monkeypatch.setattr(
        survey, "prepare_task", lambda *_, **__: SimpleNamespace(task=task)
    )
    writer, seen, said = FakeWriter(), [], []
    how = Survey(writer, None, samples=9, seed=2, batch=3, progress=seen.append)
    (tmp_path / "insults").mkdir()
    (tmp_path / "insults" / "cheap.py").write_text("x = 7")
    known = survey_tasks(
        tmp_path, how, ["insults"], reference=tmp_path, say=said.append
    )
    samples = known.tasks["insults"]
    assert [dataclasses.replace(s, nats=None) for s in samples] == seen
    assert [s.nats is None for s in samples] == [True] * 5 + [False] * 4
    # Five base prompts and four improvements, in batches of one size.
    assert [s.kind for s in samples] == ["base"] * 5 + ["improve"] * 4
    assert writer.sizes == [3] * 4
    assert [s.status for s in samples].count("no_script") == 2
    assert samples[2].script == ""
    assert not samples[2].parses
    base = {s.script: s for s in samples[:5]}
    for s in samples[5:]:
        shown = base[s.previous]
        if s.script:
            assert f"improve {shown.script}, {shown.score}, printed" in s.script
            assert s.changed == changed_share(s.previous, s.script)
    assert known.cheap == {"insults": 0.5}
    assert said[0].startswith("insults: 78% valid")
    # A folder that holds the task is not asked again.
    assert survey_tasks(tmp_path, how, ["insults"], reference=tmp_path) == known
    assert len(writer.sizes) == 4


def test_without_a_valid_script_nothing_is_improved(monkeypatch):
    def failing(pool, data, scripts, *, wall_s):
        for script in scripts:
            yield Outcome("insults", "failed", None, None, 1.0, 1.0, "why", script)

    monkeypatch.setattr(survey, "run_scripts", failing)
    data = SimpleNamespace(task=SimpleNamespace(short="insults"))
    found = Survey(FakeWriter(), None, samples=4, seed=0).task(data)
    assert [s.kind for s in found] == ["base", "base"]
    assert found[0].reason == "why"


def test_inheritance_beside_chance():
    """Two parents, three children: every figure by hand."""
    first, second = "# model: tree\na = 1\nb = 1", "# model: forest\nx = 1\ny = 1"
    base = [_sample(first, gain=0.2), _sample(second, gain=0.6)]
    child = {"kind": "improve", "previous": first}
    samples = [
        *base,
        _sample("# model: tree\na = 1\nb = 2", gain=0.3, nats=2.0, **child),
        _sample("# model: forest\na = 1\nb = 3", gain=0.1, nats=1.0, **child),
        # A comment more is no change of the program.
        _sample(f"{second}  # so", kind="improve", previous=second, gain=0.6),
        _sample("", "no_script", kind="improve", previous=first, reason="no-op edit"),
    ]
    row = inheritance(samples)
    assert row.pairs == 2
    assert row.noop == 0.5
    assert row.similar == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert row.similar_chance == pytest.approx((0 + 1 / 3) / 2)
    assert (row.family, row.family_chance) == (0.5, 0.5)
    assert row.beats == 0.5
    assert row.beats_chance == 0.5
    assert row.nats == 1.5
    assert np.isnan(row.correlation)  # of two pairs


def test_correlations():
    assert correlation([(1, 2), (2, 4), (3, 6)]) == pytest.approx(1)
    assert np.isnan(correlation([(1, 2), (1, 4), (1, 6)]))
