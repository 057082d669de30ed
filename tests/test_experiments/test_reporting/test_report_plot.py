"""The terminal's curve, the best edits, and where time went."""

import io
import json
import sys

import numpy as np
import pytest
from report_checks import ARMS, SEEDS, TASKS, close, rows
from rich.console import Console

from experiments.records.overheads import keep_overheads, read_overheads
from experiments.reporting import edits, plot, terminal, texts, times
from experiments.reporting.load import load


@pytest.mark.parametrize("width", [40, 80, 130])
@pytest.mark.parametrize("installed", [True, False])
def test_the_curve_fits_the_terminal(report, width, installed, monkeypatch):
    monkeypatch.setattr(plot, "available", lambda: installed)
    for best in report.best:
        text = plot.text(best, width=width, unicode=False)
        assert text.isascii()
        assert "\x1b" not in text
        drawn = [line for line in text.splitlines() if "|" in line]
        assert all(len(line) <= width for line in drawn)
        assert bool(drawn) == installed
        for arm in best.runs:
            assert arm in text
        assert best.task.short in text.splitlines()[0]


def test_the_table_has_the_curves_values(report):
    best = report.best[0]
    lines = plot.table(best).splitlines()
    for arm, line in zip(best.runs, lines[2:], strict=True):
        last = best.line(arm, np.array([best.end])).value[0]
        assert line.split()[0] == arm
        assert float(line.split()[-1].replace("−", "-")) == pytest.approx(last, 1e-3)


def test_curves_are_printed_on_a_terminal_or_when_asked(report, monkeypatch):
    def said(plot):
        console = Console(file=io.StringIO(), width=100)
        terminal.story(report, console, plot=plot)
        return console.file.getvalue()

    assert "best score so far" in said(True)
    assert said(None) == said(False) == ""  # no terminal here
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert "edit    " in said(None)


def test_the_best_edits_are_real_diffs(report, frames):
    for task in report.experiment.tasks:
        found = report.edits[task.short]
        assert found == edits.best_edits(report.experiment, task)
        assert 0 < len(found) <= edits.EDITS
        sign = 1 if task.higher_is_better else -1
        paths = [edit.on_path for edit in found]
        assert paths == sorted(paths, reverse=True)
        for edit in found:
            name, arm, seed = edit.run.split("/")
            frame = frames[name, arm, int(seed[5:])].set_index("run_id")
            parent, child = frame.loc[edit.parent], frame.loc[edit.child]
            assert child.parent == edit.parent
            assert (edit.before, edit.after) == (parent.score, child.score)
            assert sign * (edit.after - edit.before) > 0
            assert edit.seconds_after == child.execution_s
            folder = report.experiment.roots[0] / edit.run
            for row, mark in ((parent, "-"), (child, "+")):
                code = texts.read_script(folder, row.script_sha256).splitlines()
                changed = [c[1:] for c in edit.changed if c.startswith(mark)]
                assert changed
                assert set(changed) <= set(code)
            assert edit.diff.startswith(f"--- {edit.parent}\n+++ {edit.child}\n@@")


def test_where_time_went(report):
    found, root = rows(report, "times"), report.experiment.roots[0]
    for task in TASKS:
        for arm in ARMS:
            for phase in ("sample", "execute", "grade", "update", "other"):
                each = []
                for seed in SEEDS:
                    path = root / task / arm / f"seed-{seed}" / "metrics.jsonl"
                    lines = map(json.loads, path.read_text().splitlines())
                    each.append(sum(m["seconds"][phase] for m in lines))
                close(found[task, arm][f"{phase}_s"], np.mean(each))


def test_loading_and_compiling_are_kept_of_every_process(report, tmp_path):
    assert read_overheads(tmp_path) is None
    keep_overheads(tmp_path, loading_s=2.0, compiled_s=3.5)
    keep_overheads(tmp_path, loading_s=1.0, compiled_s=0.5)
    with (tmp_path / "process.jsonl").open("a") as file:
        file.write('{"loading_s": 9')  # killed while it wrote
    assert read_overheads(tmp_path) == {"loading_s": 3.0, "compiled_s": 4.0}
    assert "not on record" in times.overheads(report.experiment)
    root = report.experiment.roots[0]
    keep_overheads(root, loading_s=2.0, compiled_s=3.5)
    try:
        assert "compiling: 3.50 s" in times.overheads(load([root]))
    finally:
        (root / "process.jsonl").unlink()
