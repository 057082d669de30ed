"""A survey's report: result.csv, README.md and a figure."""

from __future__ import annotations

import collections
import csv
import dataclasses
import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.teaching.inheritance import Inheritance, inheritance
from experiments.teaching.survey_store import ALL, SurveyResults
from experiments.teaching.survey_summary import Sample, SurveyRow


def _cells(row: SurveyRow, cheap: float | None) -> list[str]:
    gains = " / ".join(f"{g:.2f}" for g in row.gain)
    seconds = " / ".join(f"{s:.1f}" for s in row.seconds)
    return [
        row.task,
        str(row.samples),
        f"{row.parse:.0%}",
        f"{row.run:.0%}",
        f"{row.valid:.0%}",
        f"{row.duplicates:.0%}",
        gains,
        "" if row.task == ALL else f"{row.best:.2f}",
        "" if cheap is None else f"{cheap:.2f}",
        seconds,
        f"{row.spread:.1f}",
        f"{row.changed:.0%}",
        f"{row.edits:.0%}",
    ]


HEADER = (
    "task",
    "samples",
    "parse",
    "run",
    "valid",
    "dupl.",
    "gain 5/50/95 %",
    "best 5 %",
    "cheap ref.",
    "seconds 5/50/95 %",
    "p95/p5",
    "lines changed",
    "edits",
)


def table(known: SurveyResults) -> Any:
    """The rows as a rich table."""
    from rich.table import Table

    shown = Table(*HEADER)
    for row in known.rows():
        shown.add_row(*_cells(row, known.cheap.get(row.task)))
    return shown


def write(folder: Path, known: SurveyResults) -> None:
    """result.csv, README.md, gain_and_seconds.png and .pdf."""
    rows = known.rows()
    with (folder / "result.csv").open("w", newline="", encoding="utf-8") as file:
        names = [f.name for f in dataclasses.fields(SurveyRow)]
        writer = csv.writer(file)
        writer.writerow([*names, "cheap_reference"])
        for row in rows:
            values = [_flat(getattr(row, name)) for name in names]
            writer.writerow([*values, known.cheap.get(row.task, "")])
    (folder / "README.md").write_text(_page(folder, known, rows), encoding="utf-8")
    _figure(folder, known)


def _flat(value: Any) -> Any:
    return " ".join(f"{v:.6g}" for v in value) if isinstance(value, tuple) else value


def _page(folder: Path, known: SurveyResults, rows: Sequence[SurveyRow]) -> str:
    run = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    lines = [
        f"# What `--model={run['config']['model']}` writes before reinforcement",
        "",
        _conditions(run),
        "",
        *_findings(known, rows),
        "",
        "Gain: share of the way from the sample submission's score to the perfect "
        "one. Gains and seconds are of valid samples. *edits*: share of improve "
        "answers that keep some lines and change some.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|" + "---|" * len(HEADER),
    ]
    lines += [
        "| " + " | ".join(_cells(row, known.cheap.get(row.task))) + " |" for row in rows
    ]
    lines += ["", *_inherited(known)]
    lines += ["", "![gain against seconds](gain_and_seconds.png)", ""]
    lines += ["## Failures", "", *_failures(known), "", "## Examples", ""]
    for task in list(known.tasks)[:: max(len(known.tasks) // 3, 1)][:3]:
        lines += _example(task, known.tasks[task])
    return "\n".join(lines) + "\n"


_PAIRED = (
    ("lines equal", "similar", "similar_chance"),
    ("model kept", "family", "family_chance"),
    ("child better", "beats", "beats_chance"),
)


def _inherited(known: SurveyResults) -> list[str]:
    """What children have from their parents, beside chance."""
    head = ["task", "pairs", *(f"{name}: own / chance" for name, _, _ in _PAIRED)]
    head += ["correlation of gains (chance)", "no-op", "nats of the own parent"]
    lines = [
        "## What improve answers have from their parent",
        "",
        "Of each pair the first figure is for the parent that the prompt showed, the "
        "second for chance: other parents of the task; for *child better* independent "
        "draws. The correlation stays within the figure in brackets in 95% of chance "
        "draws. *Nats*: what an answer's log-probability loses when the prompt shows "
        "another parent.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for task, samples in known.tasks.items():
        row = inheritance(samples)
        lines.append("| " + " | ".join([task, *_inherited_cells(row)]) + " |")
    return lines


def _inherited_cells(row: Inheritance) -> list[str]:
    cells = [str(row.pairs)]
    for _, own, chance in _PAIRED:
        cells.append(f"{getattr(row, own):.2f} / {getattr(row, chance):.2f}")
    cells.append(f"{row.correlation:.2f} (±{row.correlation_band:.2f})")
    return [*cells, f"{row.noop:.0%}", f"{row.nats:.1f}"]


def _conditions(run: Mapping[str, Any]) -> str:
    """How the samples were made, in a sentence."""
    config, machine = run["config"], run["machine"]
    return (
        f"`{' '.join(run['command'])}`, {run['started'][:10]}, {machine['cpu']}, "
        f"{machine['cores']} cores; temperature 1, {config['data']} data, "
        f"validation split, one sandbox slot per core, isolation {config['sandbox']}."
    )


def _findings(known: SurveyResults, rows: Sequence[SurveyRow]) -> list[str]:
    """What the table shows, in sentences."""
    tasks, total = rows[:-1], rows[-1]
    compared = [
        (row, cheap)
        for row in tasks
        if (cheap := known.cheap.get(row.task)) is not None
    ]
    reached = sum(row.best >= cheap for row, cheap in compared)
    below = sum(row.mean < cheap for row, cheap in compared)
    return [
        f"- {total.samples} samples: {total.parse:.1%} parse, {total.run:.1%} run to "
        f"their end and leave a file, {total.valid:.1%} are valid submissions; "
        f"{total.duplicates:.1%} repeat an earlier script of their task.",
        f"- Improve prompts: {total.edits:.0%} of the answers keep some lines of the "
        f"script shown and change some; the median changes {total.changed:.0%} of the "
        "lines.",
        f"- The best twentieth of a task's valid samples gains at least as much as the "
        f"cheap reference script on {reached} of {len(compared)} tasks; the mean "
        f"is below it on {below}.",
        f"- p95/p5 of the seconds is at least 5 on "
        f"{sum(row.spread >= 5 for row in tasks)} of {len(tasks)} tasks.",
    ]


def _failures(known: SurveyResults) -> list[str]:
    counts = collections.Counter(
        f"{s.status}: {s.reason.split(':')[0][:60] or s.status}"
        for found in known.tasks.values()
        for s in found
        if s.status != "valid"
    )
    return [f"- {number} x `{reason}`" for reason, number in counts.most_common(12)]


def _example(task: str, samples: Sequence[Sample]) -> list[str]:
    improved = [s for s in samples if s.kind == "improve" and s.status == "valid"]
    if not improved:
        return []
    s = improved[len(improved) // 2]
    return [
        f"**{task}**, an improvement: gain {s.gain:.3f} in {s.wall_s:.1f} s.",
        "",
        "```diff",
        *difflib.unified_diff(
            s.previous.splitlines(), s.script.splitlines(), lineterm="", n=1
        ),
        "```",
        "",
    ]


def _figure(folder: Path, known: SurveyResults) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    columns = 6
    number = len(known.tasks)
    lines = -(-number // columns)
    figure, axes = plt.subplots(
        lines,
        min(columns, number),
        figsize=(2.3 * min(columns, number), 2.1 * lines),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, (task, found) in zip(axes.flat, known.tasks.items(), strict=False):
        _panel(axis, task, found, known.cheap.get(task))
    for axis in list(axes.flat)[number:]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize=7, frameon=False)
    figure.supxlabel("seconds of the script (log scale)")
    figure.supylabel("gain; dashed: the cheap reference script")
    for suffix in ("png", "pdf"):
        figure.savefig(folder / f"gain_and_seconds.{suffix}", dpi=130)
    plt.close(figure)


def _panel(axis: Any, task: str, found: Sequence[Sample], cheap: float | None) -> None:
    """A task's valid samples; dashed, the cheap reference script's gain."""
    for kind, marker, colour in (("base", "o", "#0072B2"), ("improve", "^", "#D55E00")):
        points = [
            (s.wall_s, s.gain) for s in found if s.status == "valid" and s.kind == kind
        ]
        if points:
            axis.scatter(
                *zip(*points, strict=True),
                s=12,
                marker=marker,
                color=colour,
                alpha=0.7,
                label=kind,
            )
    if cheap is not None:
        axis.axhline(cheap, color="0.4", lw=0.8, ls="--")
    axis.set_title(task, fontsize=9)
    axis.set_xscale("log")
    axis.set_ylim(-0.05, 1.05)
