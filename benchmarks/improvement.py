"""Whether runs improve, recomputed from ledgers alone: the questions' paired intervals.

    python -m benchmarks.improvement --search=RUNS --independent=RUNS [--csv=FILE]
    python -m benchmarks.improvement --learning=RUNS [--csv=FILE]

Plan and results: results/improving/README.md. A failed attempt has value 0. ``mean`` is
of a step's attempts, ``best`` is the best of a step, both averaged over steps. Each
difference is paired by seed: mean and half-width of the 95% t interval.

    rise       search-only: the last third of steps less the first third without step 0
    above      search-only: the last third less the independent draws of the seed
    ahead      vanilla's last 8 steps less random edits in the same span of run time
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.inheritance import attempts, interval, show

LAST = 8  # steps of a learning run that are judged


class Run(NamedTuple):
    """Values of one run, by step.

    Attributes:
        mean, best: of each step's attempts; NaN of a step that has none.
        ended: the run's own time at the end of each step, seconds.
    """

    mean: np.ndarray
    best: np.ndarray
    ended: np.ndarray


def load(folder: Path) -> Run:
    """From attempts.jsonl and metrics.jsonl; the committed steps count."""
    with (folder / "metrics.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.endswith("\n")]
    ended = np.array([row["used"]["total"] for row in rows])
    values: list[list[float]] = [[] for _ in rows]
    for row in attempts(folder):
        if row["step"] < len(rows) and row["value"] is not None:
            values[row["step"]].append(row["value"] if row["valid"] else 0.0)
    return Run(
        np.array([np.mean(v) if v else np.nan for v in values]),
        np.array([np.max(v) if v else np.nan for v in values]),
        ended,
    )


def runs(folder: Path, arm: str) -> dict[tuple[str, int], Run]:
    """(task, seed) -> run, of an arm in all experiments below a folder."""
    found = {}
    for path in sorted(folder.rglob(f"{arm}/seed-*/metrics.jsonl")):
        place = path.parent
        found[place.parents[1].name, int(place.name.split("-")[1])] = load(place)
    return found


def of_search(search: Run, independent: Run) -> dict[str, float]:
    """One seed's differences of question 2."""
    third = len(search.mean) // 3
    out = {}
    for name in ("mean", "best"):
        steps, draws = getattr(search, name), getattr(independent, name)
        late = np.nanmean(steps[-third:])
        out[f"rise_{name}"] = late - np.nanmean(steps[1:third])
        out[f"above_{name}"] = late - np.nanmean(draws)
    return out


def of_learning(learning: Run, random: Run) -> dict[str, float]:
    """One seed's difference of question 3, and what it is made of."""
    if len(learning.mean) <= LAST:
        return {}
    begin, end = learning.ended[-LAST - 1], learning.ended[-1]
    inside = (random.ended > begin) & (random.ended <= end)
    if not inside.any():  # a step longer than the span: the last one before its end
        inside = random.ended == random.ended[random.ended <= end].max()
    vanilla = float(np.nanmean(learning.mean[-LAST:]))
    edits = float(np.nanmean(random.mean[inside]))
    out = {"vanilla": vanilla, "random": edits, "ahead": vanilla - edits}
    until = random.ended <= end
    out["best_ahead"] = float(np.nanmax(learning.best) - np.nanmax(random.best[until]))
    return out | {"updates": len(learning.mean), "seconds": float(end)}


def table(
    first: dict[tuple[str, int], Run], second: dict[tuple[str, int], Run], of: Any
) -> list[dict[str, Any]]:
    """A row per task: each difference's mean and half-width over the common seeds."""
    rows = []
    for task in sorted({task for task, _ in first}):
        seeds = [s for t, s in sorted(first) if t == task and (t, s) in second]
        found = [of(first[task, seed], second[task, seed]) for seed in seeds]
        found = [one for one in found if one]
        if not found:
            continue
        row: dict[str, Any] = {"task": task, "seeds": len(found)}
        for name in found[0]:
            middle, half = interval([one[name] for one in found])
            row |= {name: middle, f"{name}_half": half}
        rows.append(row)
    return rows


def verdict(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """On how many tasks all of these lie above 0 with their intervals."""
    held = [
        row["task"]
        for row in rows
        if all(row[name] - row[f"{name}_half"] > 0 for name in names)
    ]
    which = f": {', '.join(held)}" if held else ""
    return f"{' and '.join(names)} above 0 on {len(held)} of {len(rows)} tasks{which}"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table and how often it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("search", "independent", "learning", "csv"):
        parser.add_argument(f"--{name}", type=Path)
    flags = parser.parse_args(argv)
    if flags.search and flags.independent:
        found = runs(flags.search, "search-only")
        rows = table(found, runs(flags.independent, "independent"), of_search)
        names: tuple[tuple[str, ...], ...] = (
            ("rise_mean", "rise_best", "above_mean", "above_best"),
            ("rise_mean",),
            ("rise_best",),
            ("above_mean",),
            ("above_best",),
        )
    elif flags.learning:
        found = runs(flags.learning, "vanilla")
        rows = table(found, runs(flags.learning, "random-edits"), of_learning)
        names = (("ahead",), ("best_ahead",))
    else:
        parser.error("give --search and --independent, or --learning")
    if not rows:
        print("no runs of both arms with one task and seed", file=sys.stderr)
        return 1
    show(rows, flags.csv)
    for which in names:
        print(verdict(rows, which))
    return 0


if __name__ == "__main__":
    sys.exit(main())
