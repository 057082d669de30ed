"""Seconds of a process that are on no run's clock: loading and compiling.

``process.jsonl`` in an experiment's folder: one line a process that worked on it.
"""

import contextlib
import json
from pathlib import Path

PROCESS = "process.jsonl"
OVERHEADS = ("loading_s", "compiled_s")


def keep_overheads(folder: Path, *, loading_s: float, compiled_s: float) -> None:
    """Add a process's seconds. No record of truth: a full disk loses the line."""
    line = json.dumps({"loading_s": loading_s, "compiled_s": compiled_s})
    with (
        contextlib.suppress(OSError),
        (folder / PROCESS).open("a", encoding="utf-8") as file,
    ):
        file.write(f"{line}\n")


def read_overheads(folder: Path) -> dict[str, float] | None:
    """Sums over an experiment's processes; None where none are on record."""
    total = dict.fromkeys(OVERHEADS, 0.0)
    try:
        lines = (folder / PROCESS).read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            row = json.loads(line)
            found = {name: float(row[name]) for name in OVERHEADS}
            total = {name: total[name] + found[name] for name in OVERHEADS}
    return total
