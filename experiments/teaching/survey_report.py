"""The survey's files: samples.jsonl in, result.csv, README.md and a figure out."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.teaching.survey import Row, Sample, summarise

SAMPLES = "samples.jsonl"
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Known:
    """What a survey's folder holds: samples and the cheap reference's gain by task."""

    tasks: dict[str, list[Sample]]
    cheap: dict[str, float | None]

    def rows(self) -> list[Row]:
        """A row per task, then one for all."""
        rows = [summarise(task, found) for task, found in self.tasks.items()]
        every = [s for found in self.tasks.values() for s in found]
        return [*rows, summarise(ALL, every)]


def read(folder: Path) -> Known:
    """The finished tasks of a folder; a torn last line is a task not finished."""
    known = Known({}, {})
    path = folder / SAMPLES
    if not path.exists():
        return known
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
            samples = [Sample(**row) for row in record["samples"]]
            task, cheap = record["task"], record["cheap"]
        except (ValueError, KeyError, TypeError):
            break
        known.tasks[task], known.cheap[task] = samples, cheap
    return known


def append(
    folder: Path, samples: Sequence[Sample], task: str, cheap: float | None
) -> Known:
    """Add a finished task; everything known so far."""
    known = read(folder)
    known.tasks[task], known.cheap[task] = list(samples), cheap
    lines = [
        json.dumps(
            {
                "task": name,
                "cheap": known.cheap[name],
                "samples": [dataclasses.asdict(s) for s in found],
            }
        )
        for name, found in known.tasks.items()
    ]
    scratch = folder / f"{SAMPLES}.partial"
    scratch.write_text("\n".join(lines) + "\n", encoding="utf-8")
    scratch.replace(folder / SAMPLES)
    return known


def _cells(row: Row, cheap: float | None) -> list[str]:
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


def table(known: Known) -> Any:
    """The rows as a rich table."""
    from rich.table import Table

    shown = Table(*HEADER)
    for row in known.rows():
        shown.add_row(*_cells(row, known.cheap.get(row.task)))
    return shown


def write(folder: Path, known: Known) -> None:
    """result.csv, README.md, gain_and_seconds.png and .pdf."""
    rows = known.rows()
    with (folder / "result.csv").open("w", newline="", encoding="utf-8") as file:
        names = [f.name for f in dataclasses.fields(Row)]
        writer = csv.writer(file)
        writer.writerow([*names, "cheap_reference"])
        for row in rows:
            values = [_flat(getattr(row, name)) for name in names]
            writer.writerow([*values, known.cheap.get(row.task, "")])
    (folder / "README.md").write_text(_page(folder, known, rows), encoding="utf-8")
    _figure(folder, known)


def _flat(value: Any) -> Any:
    return " ".join(f"{v:.6g}" for v in value) if isinstance(value, tuple) else value


def _page(folder: Path, known: Known, rows: Sequence[Row]) -> str:
    run = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    total = rows[-1]
    reached = [
        row.task
        for row in rows[:-1]
        if known.cheap.get(row.task) is not None and row.best >= known.cheap[row.task]
    ]
    compared = [task for task in known.tasks if known.cheap.get(task) is not None]
    below = [
        row.task
        for row in rows[:-1]
        if row.task in compared and row.mean < known.cheap[row.task]
    ]
    machine = run["machine"]
    lines = [
        f"# What `--model={run['config']['model']}` writes before reinforcement",
        "",
        f"`{' '.join(run['command'])}`, {run['started'][:10]}, {machine['cpu']}, "
        f"{machine['cores']} cores; temperature 1, {run['config']['data']} data, "
        f"validation split, one sandbox slot per core, isolation "
        f"{run['config']['sandbox']}.",
        "",
        f"- {total.samples} samples: {total.parse:.1%} parse, {total.run:.1%} run to "
        f"their end and leave a file, {total.valid:.1%} are valid submissions; "
        f"{total.duplicates:.1%} repeat an earlier script of their task.",
        f"- Improve prompts: {total.edits:.0%} of the answers keep some lines of the "
        f"script shown and change some; the median changes {total.changed:.0%} of the "
        "lines.",
        f"- The best twentieth of a task's valid samples gains at least as much as the "
        f"cheap reference script on {len(reached)} of {len(compared)} tasks; the mean "
        f"is below it on {len(below)}.",
        f"- p95/p5 of the seconds is at least 5 on "
        f"{sum(row.spread >= 5 for row in rows[:-1])} of {len(rows) - 1} tasks.",
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
    lines += [
        "",
        "![gain against seconds](gain_and_seconds.png)",
        "",
        "## Failures",
        "",
    ]
    lines += _failures(known)
    lines += ["", "## Examples", ""]
    for task in list(known.tasks)[:: max(len(known.tasks) // 3, 1)][:3]:
        lines += _example(task, known.tasks[task])
    return "\n".join(lines) + "\n"


def _failures(known: Known) -> list[str]:
    counts: dict[str, int] = {}
    for found in known.tasks.values():
        for s in found:
            if s.status != "valid":
                reason = s.reason.split(":")[0][:60] or s.status
                counts[f"{s.status}: {reason}"] = (
                    counts.get(f"{s.status}: {reason}", 0) + 1
                )
    ranked = sorted(counts.items(), key=lambda item: -item[1])[:12]
    return [f"- {number} x `{reason}`" for reason, number in ranked]


def _example(task: str, samples: Sequence[Sample]) -> list[str]:
    improved = [s for s in samples if s.kind == "improve" and s.status == "valid"]
    if not improved:
        return []
    s = improved[len(improved) // 2]
    return [
        f"**{task}**, an improvement: gain {s.gain:.3f} in {s.wall_s:.1f} s. {s.plan}",
        "",
        "```python",
        s.script.rstrip(),
        "```",
        "",
    ]


def _figure(folder: Path, known: Known) -> None:
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
        for kind, marker, colour in (
            ("base", "o", "#0072B2"),
            ("improve", "^", "#D55E00"),
        ):
            points = [
                (s.wall_s, s.gain)
                for s in found
                if s.status == "valid" and s.kind == kind
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
        if known.cheap.get(task) is not None:
            axis.axhline(known.cheap[task], color="0.4", lw=0.8, ls="--")
        axis.set_title(task, fontsize=9)
        axis.set_xscale("log")
        axis.set_ylim(-0.05, 1.05)
    for axis in list(axes.flat)[number:]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize=7, frameon=False)
    figure.supxlabel("seconds of the script (log scale)")
    figure.supylabel("gain; dashed: the cheap reference script")
    for suffix in ("png", "pdf"):
        figure.savefig(folder / f"gain_and_seconds.{suffix}", dpi=130)
    plt.close(figure)
