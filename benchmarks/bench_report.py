"""What a report of many attempts costs, beside one of the run itself.

    python -m benchmarks.bench_report RUN --attempts=10000 --repeats=3

Works on a copy of the run; its steps are repeated until it has so many attempts.
"""

import argparse
import json
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from experiments.reporting.build import build

#: Characters of output of every attempt: about what a failed script leaves.
OUTPUT = 1_900


def grow(folder: Path, attempts: int) -> None:
    """Repeat the steps of each run of an experiment until it has so many attempts.

    Args:
        folder: of the experiment, changed in place.
        attempts: of each run at least.
    """
    for path in folder.glob("*/*/seed-*/attempts.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        metrics = path.with_name("metrics.jsonl")
        numbers = [json.loads(line) for line in metrics.read_text().splitlines()]
        steps, padding = len(numbers), "x" * OUTPUT
        copies = -(-attempts // len(lines))
        with path.open("w") as file, metrics.open("w") as other:
            for copy in range(copies):
                for line in lines:
                    step = line["step"] + copy * steps
                    name = f"{line['run_id']}-{copy}"
                    parent = line["parent"] and f"{line['parent']}-{copy}"
                    line = line | {"step": step, "run_id": name, "parent": parent}
                    file.write(json.dumps(line | {"stdout": padding}) + "\n")
                for line in numbers:
                    line = line | {"step": line["step"] + copy * steps}
                    line["used"] = line["used"] | {
                        "total": line["used"]["total"] + copy * steps
                    }
                    other.write(json.dumps(line) + "\n")


def main() -> None:
    """Prints attempts, seconds of both and their ratio, and the memory used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        grown = Path(folder, "run")
        skip = shutil.ignore_patterns("report", "checkpoints", "drafts", "tb")
        shutil.copytree(flags.run, grown, ignore=skip)
        runs = len(list(grown.glob("*/*/seed-*/attempts.jsonl")))
        if not runs:
            parser.error(f"{flags.run} holds no runs")
        grow(grown, -(-flags.attempts // runs))
        seconds: dict[Path, list[float]] = {flags.run: [], grown: []}
        counts = {}
        for _ in range(flags.repeats):
            for run, spent in seconds.items():
                begin = time.perf_counter()
                report = build(run, Path(folder, "report"))
                spent.append(time.perf_counter() - begin)
                counts[run] = sum(len(c.attempts) for c in report.experiment.runs)
    few, many = (statistics.median(spent) for spent in seconds.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{counts[grown]:,} attempts: {many:.1f} s; {counts[flags.run]:,}: {few:.1f} s"
        f" (ratio {many / few:.2f}, median of {flags.repeats}); peak {peak:.0f} MB"
    )


if __name__ == "__main__":
    main()
