"""What the sandbox costs, and how true its seconds are.

    python -m benchmarks.bench_sandbox --repeats=15 --out=bench_sandbox.json

Everything is compared side by side in one run: against a bare ``Popen``, against timing
from spawn to exit, against unpinned ``subprocess.run``. Run it on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from sandbox_exec import Level, Limits, LocalPool, ScriptJob, probe_isolation
from sandbox_exec.slots import available_cores

LIMITS = Limits(wall_s=300, memory_mb=4096, pids=512)

LOADS = {
    "python": """
total = 0
for i in range({n} * 3_000_000):
    total += i * i % 7
""",
    "blas": """
import numpy as np
a = np.random.default_rng(0).normal(size=(1200, 1200))
for _ in range({n} * 12):
    a = a @ a
    a /= np.abs(a).max()
""",
    "sklearn": """
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
x, y = make_classification(20_000, 20, random_state=0)
HistGradientBoostingClassifier(max_iter={n} * 60).fit(x, y)
""",
}


def start_cost(repeats: int, levels: list[Level]) -> list[dict]:
    """Job to record of an empty script, against a bare Popen of the interpreter."""
    pools = {
        level: LocalPool(1, level=level, calibrate=False, rerun_contended=False)
        for level in levels
    }
    bare: list[float] = []
    wall: dict[Level, list[float]] = {level: [] for level in levels}
    setup: dict[Level, list[float]] = {level: [] for level in levels}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "empty.py")
        script.write_bytes(b"")
        for repeat in range(repeats + 2):  # two to warm up
            start = time.perf_counter()
            subprocess.run([sys.executable, script], check=True)
            spent = time.perf_counter() - start
            if repeat >= 2:
                bare.append(spent)
            for level, pool in pools.items():
                start = time.perf_counter()
                record = pool.submit(ScriptJob(script=b"", limits=LIMITS)).result()
                spent = time.perf_counter() - start
                assert record.status == "ok", record.error
                if repeat >= 2:
                    wall[level].append(spent)
                    setup[level].append(record.setup_s + record.reap_s)
    for pool in pools.values():
        pool.close()
    base = statistics.median(bare)
    rows = [{"runner": "bare Popen", "wall_ms": 1e3 * base, "ratio": 1.0}]
    for level in levels:
        middle = statistics.median(wall[level])
        outside = 1e3 * statistics.median(setup[level])
        rows.append(
            {
                "runner": level.name,
                "wall_ms": 1e3 * middle,
                "ratio": middle / base,
                "outside_delta_ms": outside,
            }
        )
    return rows


def delta_error(repeats: int, levels: list[Level]) -> list[dict]:
    """Error of delta on a sleep of 0.3 s, against timing from spawn to exit.

    Both include the start of the script's interpreter, which is measured too.
    """
    text = b"import time; time.sleep(0.3)"
    rows = []
    for level in levels:
        errors, whole, start_up = [], [], []
        with LocalPool(1, level=level, calibrate=False, rerun_contended=False) as pool:
            for _ in range(repeats):
                start = time.perf_counter()
                record = pool.submit(ScriptJob(script=text, limits=LIMITS)).result()
                whole.append(time.perf_counter() - start - 0.3)
                errors.append(record.delta_s - 0.3)
                empty = pool.submit(ScriptJob(script=b"", limits=LIMITS)).result()
                start_up.append(empty.delta_s)
        rows.append(
            {
                "level": level.name,
                "delta_error_ms": 1e3 * statistics.median(errors),
                "interpreter_start_ms": 1e3 * statistics.median(start_up),
                "error_without_start_ms": 1e3
                * (statistics.median(errors) - statistics.median(start_up)),
                "job_to_record_error_ms": 1e3 * statistics.median(whole),
            }
        )
    return rows


def fidelity(repeats: int, scale: int, load: str) -> list[dict]:
    """Inflation and spread of delta for scripts queued on two slots, and unpinned."""
    slots = min(2, len(available_cores()))
    text = LOADS[load].replace("{n}", str(scale)).encode()
    job = ScriptJob(script=text, limits=LIMITS)
    rows = []
    with LocalPool(slots, calibrate=False, rerun_contended=False) as pool:

        def batch(count: int) -> list:
            jobs = [replace(job, run_id="") for _ in range(count)]
            return [f.result() for f in [pool.submit(one) for one in jobs]]

        batch(slots)  # warm the page cache
        lone = [record for _ in range(repeats) for record in batch(1)]
        if lone[0].status != "ok":
            return [{"load": load, "skipped": lone[0].stderr_head[-200:]}]
        base = statistics.median(record.delta_s for record in lone)
        cpu = statistics.median(record.cpu_s for record in lone)
        for count in (1, 2, 4):
            records = [record for _ in range(repeats) for record in batch(count)]
            deltas = [record.delta_s for record in records]
            rows.append(
                {
                    "load": load,
                    "runner": f"{count} queued on {slots} slots",
                    "lone_s": base,
                    "inflation": statistics.fmean(deltas) / base,
                    "cpu_inflation": statistics.fmean(r.cpu_s for r in records) / cpu,
                    "cv": statistics.pstdev(deltas) / statistics.fmean(deltas),
                    "contended": sum(r.slot.contended for r in records),
                }
            )
    rows.append(_unpinned(load, text, base, cpu, repeats))
    return rows


def _unpinned(load: str, text: bytes, base: float, cpu: float, repeats: int) -> dict:
    """Four at a time by subprocess.run, with the libraries' default threads."""

    def one(_: int) -> tuple[float, float]:
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", text])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return time.perf_counter() - start, usage.ru_utime + usage.ru_stime

    with ThreadPoolExecutor(4) as threads:
        results = [r for _ in range(repeats) for r in threads.map(one, range(4))]
    deltas = [wall for wall, _ in results]
    return {
        "load": load,
        "runner": "4 unpinned, subprocess.run",
        "lone_s": base,
        "inflation": statistics.fmean(deltas) / base,
        "cpu_inflation": statistics.fmean(c for _, c in results) / cpu,
        "cv": statistics.pstdev(deltas) / statistics.fmean(deltas),
    }


def cpu_error(repeats: int) -> list[dict]:
    """The record's CPU seconds against what the script itself counts."""
    text = b"import os, time\nwhile sum(os.times()[:2]) < 1.0: pass\n"
    text += b"print(sum(os.times()[:4]))"
    rows = []
    levels = [x for x in (Level.FULL, Level.NAMESPACES) if _holds(x)]
    for level in levels:
        differences = []
        with LocalPool(1, level=level, calibrate=False, rerun_contended=False) as pool:
            for _ in range(repeats):
                record = pool.submit(ScriptJob(script=text, limits=LIMITS)).result()
                differences.append(record.cpu_s - float(record.stdout_head))
        rows.append(
            {
                "level": level.name,
                "source": record.cpu_source,
                "difference_ms": 1e3 * statistics.median(differences),
                "worst_ms": 1e3 * max(map(abs, differences)),
            }
        )
    return rows


PRINTS = b"""
import sys, time
start = time.perf_counter()
for i in range(50_000): print("step", i, 0.5)
spent = time.perf_counter() - start
print(spent / 50_000, file=sys.stderr)
"""


def print_cost(repeats: int) -> list[dict]:
    """Seconds of a ``print`` of three values: by whole buffers, by lines, by pieces."""
    kinds = {
        "whole buffers": {"PYTHONPATH": ""},
        "lines (as scripts run)": {},
        "pieces (PYTHONUNBUFFERED)": {"PYTHONUNBUFFERED": "1"},
    }
    rows = []
    with LocalPool(1, calibrate=False, rerun_contended=False) as pool:
        for kind, env in kinds.items():
            job = ScriptJob(script=PRINTS, limits=LIMITS, env=env)
            records = [
                pool.submit(replace(job, run_id="")).result() for _ in range(repeats)
            ]
            least = min(float(record.stderr_head) for record in records)
            rows.append({"written": kind, "print_us": 1e6 * least})
    return rows


def _holds(level: Level) -> bool:
    return level not in probe_isolation().missing


def _print(title: str, rows: list[dict]) -> None:
    print(f"\n{title}", flush=True)
    for row in rows:
        cells = (
            f"{key}={value:.3f}" if isinstance(value, float) else f"{key}={value}"
            for key, value in row.items()
        )
        print("  " + "  ".join(cells), flush=True)


def main() -> None:
    """Run the chosen parts and print (and write) their tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--scale", type=int, default=2, help="size of the loads")
    parser.add_argument("--parts", default="start,delta,cpu,print,fidelity")
    parser.add_argument("--loads", default="python,blas,sklearn")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    options = parser.parse_args()
    levels = [level for level in sorted(Level, reverse=True) if _holds(level)]
    repeats, parts = options.repeats, options.parts.split(",")
    result: dict = {
        "cores": len(available_cores()),
        "python": sys.version.split()[0],
        "load_average": os.getloadavg(),
    }
    if "start" in parts:
        result["start"] = start_cost(repeats, levels)
        _print("start cost (empty script, job to record)", result["start"])
    if "delta" in parts:
        result["delta"] = delta_error(repeats, levels)
        _print("error of delta on sleep 0.3 s", result["delta"])
    if "cpu" in parts:
        result["cpu"] = cpu_error(max(3, repeats // 3))
        _print("CPU seconds against the script's own count", result["cpu"])
    if "print" in parts:
        result["print"] = print_cost(max(3, repeats // 3))
        _print("cost of printing", result["print"])
    if "fidelity" in parts:
        loads = options.loads.split(",")
        result["fidelity"] = []
        for load in loads:  # each takes a while: show it when it is there
            rows = fidelity(max(1, repeats // 3), options.scale, load)
            _print(f"delta of queued scripts: {load}", rows)
            result["fidelity"] += rows
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
