"""The study of best scores, recomputed from ledgers alone (results/best_score/PLAN.md).

    python -m benchmarks.best_score --pilot=RUNS
    python -m benchmarks.best_score --pilot=RUNS --study=RUNS [--csv=FILE]

With ``--pilot`` alone it prints W, mean attempt seconds d and the budget
32 d. With ``--study`` it compares arms: the mean over chains of the best value when a
chain has spent 32 d execution seconds, paired by seed, 95% t intervals; then over the
pools of tasks with W < 4 and W >= 5, and against log W. A failed attempt has value 0.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.inheritance import Attempt, attempts, interval, show
from rpg_jax.spread import score_free_spread

ATTEMPTS = 32  # of the untrained policy's mean seconds: when arms are judged
LOW, HIGH = 4.0, 5.0  # pools: W < LOW, W >= HIGH
PAIRS = (  # (arm, with which it is compared)
    ("max-at-k", "vanilla"),
    ("max-at-k+own", "max-at-k"),
    ("max-at-k+own", "vanilla"),
    ("rpg", "vanilla"),
)

Runs = dict[tuple[str, str, int], list[Attempt]]


class Pilot(NamedTuple):
    """A task under the untrained policy: W, its interval, mean attempt seconds."""

    spread: float
    low: float
    high: float
    seconds: float


def load(folder: Path) -> Runs:
    """(task, arm, seed) -> attempts, of all experiments below a folder."""
    found: Runs = {}
    for path in sorted(folder.rglob("attempts.jsonl")):
        rows = [row for row in attempts(path.parent) if row["value"] is not None]
        if rows:
            found[rows[0]["task"], rows[0]["arm"], rows[0]["seed"]] = rows
    return found


def charged(row: Attempt) -> float:
    """CPU seconds of an attempt, a tenth at least, as budgets count."""
    return max(0.1, row.get("cpu_s") or 0.0)


def best_at(rows: Sequence[Attempt], seconds: float) -> float:
    """Mean over chains of the best value of attempts that ended by then.

    A chain that ends before keeps its last best; one without an attempt has 0.
    """
    best: dict[int, float] = {}
    spent: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        chain = row["chain"]
        best.setdefault(chain, 0.0)
        spent[chain] = spent.get(chain, 0.0) + charged(row)
        if row["valid"] and spent[chain] <= seconds:
            best[chain] = max(best[chain], row["value"])
    return float(np.mean(list(best.values())))


def pilots(runs: Runs) -> dict[str, Pilot]:
    """Each task's spread and seconds, over all runs of the pilot."""
    out = {}
    for task in sorted({task for task, _, _ in runs}):
        rows = [row for key, found in runs.items() if key[0] == task for row in found]
        first = [row for row in rows if row["valid"] and not row.get("repeat_of")]
        found = score_free_spread(
            np.array([row["value"] for row in first]),
            np.array([charged(row) for row in first]),
        )
        mean = float(np.mean([charged(row) for row in rows]))
        out[task] = Pilot(found.spread, found.low, found.high, mean)
    return out


def differences(
    runs: Runs, pilot: dict[str, Pilot], share: float = 1.0
) -> dict[tuple[str, str], dict[str, dict[int, float]]]:
    """(arm, other) -> task -> seed -> how far the arm is ahead at ``share`` of 32 d."""
    at = {
        key: best_at(rows, share * ATTEMPTS * pilot[key[0]].seconds)
        for key, rows in runs.items()
        if key[0] in pilot
    }
    out: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for arm, other in PAIRS:
        for task, name, seed in sorted(at):
            if name == arm and (task, other, seed) in at:
                by_seed = out.setdefault((arm, other), {}).setdefault(task, {})
                by_seed[seed] = at[task, arm, seed] - at[task, other, seed]
    return out


def pooled(by_task: dict[str, dict[int, float]], tasks: Sequence[str]) -> list[float]:
    """Each seed's mean over tasks, of the seeds that all of these tasks have."""
    known = [by_task[task] for task in tasks if task in by_task]
    if not known:
        return []
    seeds = sorted(set.intersection(*(set(one) for one in known)))
    return [float(np.mean([one[seed] for one in known])) for seed in seeds]


def rows_of(
    found: dict[tuple[str, str], dict[str, dict[int, float]]], pilot: dict[str, Pilot]
) -> list[dict[str, Any]]:
    """A row per comparison and task, then one per pool."""
    low = [task for task, one in pilot.items() if one.spread < LOW]
    high = [task for task, one in pilot.items() if one.spread >= HIGH]
    rows = []
    for (arm, other), by_task in found.items():
        each = [
            (task, pilot[task].spread, [*by_task[task].values()]) for task in by_task
        ]
        each += [
            ("pool W < 4", math.nan, pooled(by_task, low)),
            ("pool W >= 5", math.nan, pooled(by_task, high)),
        ]
        for name, spread, values in each:
            if not values:
                continue
            middle, half = interval(values)
            settled = math.isfinite(half) and abs(middle) > half
            rows.append(
                {
                    "arm": arm,
                    "than": other,
                    "task": name,
                    "W": spread,
                    "seeds": len(values),
                    "ahead": middle,
                    "half": half,
                    "wins": sum(value > 0 for value in values),
                    "state": "settled" if settled else "not settled",
                }
            )
    return rows


def dose(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Spearman's correlation of each comparison's lead with log W, over tasks."""
    from scipy.stats import spearmanr

    lines = []
    for pair in dict.fromkeys((row["arm"], row["than"]) for row in rows):
        own = [row for row in rows if (row["arm"], row["than"]) == pair]
        points = [(row["W"], row["ahead"]) for row in own if math.isfinite(row["W"])]
        if len(points) > 2:
            found = spearmanr(*zip(*points, strict=True))
            lines.append(
                f"{pair[0]} - {pair[1]}: lead against log W over {len(points)} tasks: "
                f"Spearman {found.statistic:.2f}, p {found.pvalue:.2f}"
            )
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pilot", type=Path, required=True)
    parser.add_argument("--study", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="of 32 d")
    parser.add_argument("--csv", type=Path)
    flags = parser.parse_args(argv)
    pilot = pilots(load(flags.pilot))
    if not pilot:
        print(f"no attempts below {flags.pilot}", file=sys.stderr)
        return 1
    if flags.study is None:
        show(
            [
                {"task": task} | one._asdict() | {"budget": ATTEMPTS * one.seconds}
                for task, one in pilot.items()
            ],
            flags.csv,
        )
        return 0
    rows = rows_of(differences(load(flags.study), pilot, flags.share), pilot)
    if not rows:
        print("no two arms with one task and seed", file=sys.stderr)
        return 1
    show(rows, flags.csv)
    print(*dose(rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
