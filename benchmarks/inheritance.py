"""What children have from their parents, recomputed from ledgers alone.

    python -m benchmarks.inheritance RUN [RUN ...] [--csv=FILE]

RUN is the folder of an experiment. It reads attempts.jsonl and scripts/, and shares no
code with the experiment: JSON, difflib and NumPy. Runs of one task and arm are pooled
over seeds. First runs of scripts that differ from their parent's program count.

    noop      share of edits that leave their parent's program as it is
    similar   mean share of equal lines: child and its parent / another of the step
    model     share of children that keep their parent's model part
    r         correlation of child's and parent's value, both centred within the step
    better    mean value of the last third of steps less that of the first third without
              step 0, by run: mean and half-width of the 95% t interval over runs
    best      the same of each step's best value
"""

from __future__ import annotations

import argparse
import ast
import collections
import csv
import difflib
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

MODEL = re.compile(r"^# model: (\S+)", re.MULTILINE)
Attempt = dict[str, Any]


def attempts(run: Path) -> list[Attempt]:
    """Of one run, with their scripts; a chain's later record of a step counts."""
    rows: dict[tuple[int, int], Attempt] = {}
    with (run / "attempts.jsonl").open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                row = json.loads(line)
                rows[row["step"], row["chain"]] = row
    for row in rows.values():
        name = row.get("script_file")
        path = run / name if name else None
        known = path is not None and path.exists()
        row["text"] = path.read_text(encoding="utf-8") if known else ""
    return [rows[key] for key in sorted(rows)]


def program(text: str) -> str:
    """Without comments and blank lines."""
    try:
        return ast.unparse(ast.parse(text))
    except (SyntaxError, ValueError):
        return text


def similar(a: str, b: str) -> float:
    """Share of equal lines, in order."""
    lines = a.strip().split("\n"), b.strip().split("\n")
    return difflib.SequenceMatcher(None, *lines, autojunk=False).ratio()


def pairs(rows: Sequence[Attempt]) -> Iterator[tuple[Attempt, Attempt]]:
    """(child, parent) of first runs with a script."""
    by_id = {row["run_id"]: row for row in rows}
    for row in rows:
        parent = by_id.get(row["parent"] or "")
        if row["text"] and parent is not None and not row.get("repeat_of"):
            yield row, parent


def of_run(rows: Sequence[Attempt]) -> dict[str, list[Any]]:
    """The figures of one run, as lists to be pooled."""
    found: dict[str, list[Any]] = collections.defaultdict(list)
    steps: dict[int, list[tuple[Attempt, Attempt]]] = collections.defaultdict(list)
    refused = [r for r in rows if (r.get("reason") or "").startswith("no-op edit")]
    found["noop"] = [True] * len(refused)  # such answers give no script
    for child, parent in pairs(rows):
        same = program(child["text"]) == program(parent["text"])
        found["noop"].append(same)
        if same:
            continue
        steps[child["step"]].append((child, parent))
        found["own"].append(similar(child["text"], parent["text"]))
        models = MODEL.search(child["text"]), MODEL.search(parent["text"])
        if all(models):
            found["model"].append(models[0][1] == models[1][1])
    for made in steps.values():
        shown = {parent["run_id"]: parent["text"] for _, parent in made}
        for child, parent in made:
            others = [t for key, t in shown.items() if key != parent["run_id"]]
            found["other"] += [similar(child["text"], text) for text in others[:2]]
        valid = [(c["value"], p["value"]) for c, p in made if c["valid"]]
        if len(valid) > 1:
            centred = np.array(valid, float) - np.mean(valid, axis=0)
            found["centred"] += centred.tolist()
    found["valid"] = [row["valid"] for row in rows]
    texts = [program(row["text"]) for row in rows if row["text"]]
    found["distinct"] = [len(set(texts)) / max(len(rows), 1)]
    mean, best = thirds(rows)
    found["better"], found["best"] = [mean], [best]
    return found


def thirds(rows: Sequence[Attempt]) -> tuple[float, float]:
    """Last third less first third without step 0: of the steps' mean and best value."""
    values: dict[int, list[float]] = collections.defaultdict(list)
    for row in rows:
        if row["value"] is not None:
            values[row["step"]].append(row["value"] if row["valid"] else 0.0)
    steps = sorted(values)
    third = len(steps) // 3
    first, last = steps[1:third], steps[-third:] if third else []
    if not first or not last:
        return math.nan, math.nan
    return tuple(  # type: ignore[return-value]
        float(np.mean([f(values[s]) for s in last]))
        - float(np.mean([f(values[s]) for s in first]))
        for f in (np.mean, np.max)
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of the 95% t interval."""
    from scipy.stats import t

    known = np.array([v for v in values if math.isfinite(v)])
    if len(known) < 2:
        return (float(known.mean()) if len(known) else math.nan), math.nan
    half = t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / len(known) ** 0.5
    return float(known.mean()), float(half)


def mean(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return float(np.mean(values)) if len(values) else math.nan


def row_of(task: str, arm: str, found: dict[str, list[Any]]) -> dict[str, Any]:
    """One line of the table."""
    centred = np.array(found["centred"] or np.zeros((0, 2)))
    varies = len(centred) > 2 and (centred.std(axis=0) > 1e-12).all()
    better, best = interval(found["better"]), interval(found["best"])
    return {
        "task": task,
        "arm": arm,
        "runs": len(found["better"]),
        "pairs": len(found["own"]),
        "similar_own": mean(found["own"]),
        "similar_other": mean(found["other"]),
        "noop": mean(found["noop"]),
        "model_kept": mean(found["model"]),
        "r": float(np.corrcoef(centred.T)[0, 1]) if varies else math.nan,
        "valid": mean(found["valid"]),
        "distinct": mean(found["distinct"]),
        "better": better[0],
        "better_half": better[1],
        "best": best[0],
        "best_half": best[1],
    }


def table(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """A row per task and arm of these experiments."""
    pooled: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for path in sorted(
        itertools.chain.from_iterable(f.rglob("attempts.jsonl") for f in folders)
    ):
        rows = attempts(path.parent)
        if not rows:
            continue
        key = rows[0]["task"], rows[0]["arm"]
        into = pooled.setdefault(key, collections.defaultdict(list))
        for name, values in of_run(rows).items():
            into[name] += values
    return [row_of(*key, found) for key, found in pooled.items()]


def show(rows: Sequence[dict[str, Any]], file: Path | None) -> None:
    """Prints a table, and writes it as CSV if a file is given."""
    print("  ".join(rows[0]))
    for row in rows:
        cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
        print("  ".join(cells))
    if file is not None:
        with file.open("w", newline="", encoding="utf-8") as opened:
            writer = csv.DictWriter(opened, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path)
    flags = parser.parse_args(argv)
    rows = table(flags.runs)
    if not rows:
        print("no attempts.jsonl in these folders", file=sys.stderr)
        return 1
    show(rows, flags.csv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
