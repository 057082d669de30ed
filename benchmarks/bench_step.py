"""What a policy step costs beside its scripts: sampling and update, from real runs.

    python -m benchmarks.bench_step --tasks=15 --steps=6 --out=runs/bench_step
    python -m benchmarks.bench_step --read runs/improving/learning

Runs ``vanilla`` with the embedded policy and the default number of chains, a task after
the other, and reads the phases of every step from metrics.jsonl. Loading, compilation
and the first step are left out. The share is of all seconds of the steps' wall time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

FIRST = 1  # steps left out: what is compiled late falls into the first


def phases(folder: Path) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """(task, seconds by phase of each step) of the runs below a folder."""
    for path in sorted(folder.rglob("seed-*/metrics.jsonl")):
        with path.open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.endswith("\n")]
        if len(rows) > FIRST:
            steps = [row["seconds"] for row in rows[FIRST:]]
            yield path.parents[2].name, steps


def row_of(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """Medians over steps, seconds, and the share of the wall time."""
    policy = [step["sample"] + step["update"] for step in steps]
    return {
        "sample_s": statistics.median(step["sample"] for step in steps),
        "update_s": statistics.median(step["update"] for step in steps),
        "policy_s": statistics.median(policy),
        "step_s": statistics.median(sum(step.values()) for step in steps),
        "share": sum(policy) / sum(sum(step.values()) for step in steps),
    }


def run(tasks: Sequence[str], steps: int, out: Path) -> None:
    """Run the command for each task; one that is done is not run again."""
    for task in tasks:
        folder = out / task
        command = [
            *(sys.executable, "-m", "experiments.mle_bench", f"--task={task}"),
            *("--arms=vanilla", f"--steps={steps}", "--final=none", "--noreport"),
            f"--out={folder}",
        ]
        if (folder / "result.csv").exists():
            continue
        print(f"{task} ...", file=sys.stderr, flush=True)
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise SystemExit(f"error: {' '.join(command)} failed")


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a row per task and the largest of each column."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=15, help="the first N tasks")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("runs/bench_step"))
    parser.add_argument("--read", type=Path, help="runs that are there already")
    flags = parser.parse_args(argv)
    if flags.read is None:
        from rpg_tasks.registry import load_tasks

        run(list(load_tasks())[: flags.tasks], flags.steps, flags.out)
    found: dict[str, list[dict[str, float]]] = {}
    for task, steps in phases(flags.read or flags.out):
        found.setdefault(task, []).extend(steps)
    if not found:
        print("no run of two steps or more in this folder", file=sys.stderr)
        return 1
    rows = {task: row_of(steps) for task, steps in found.items()}
    names = list(next(iter(rows.values())))
    print(f"{'task':<16}" + "".join(f"{name:>10}" for name in names))
    for task, row in rows.items():
        print(f"{task:<16}" + "".join(f"{row[name]:>10.3f}" for name in names))
    worst = {name: max(row[name] for row in rows.values()) for name in names}
    print(f"{'largest':<16}" + "".join(f"{worst[name]:>10.3f}" for name in names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
