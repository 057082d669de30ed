"""What is on record of a run's private test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.records.ledger import read
from experiments.records.recorded import INFRASTRUCTURE

FINAL = "final.jsonl"

Record = dict[str, Any]


def final_records(folder: Path) -> list[Record]:
    """What is on record of a run's private test; empty without any."""
    if not (folder / FINAL).exists():
        return []
    return [record for _, record in read(folder / FINAL)]


def best_final(folder: Path) -> Record | None:
    """The last word on the run's best script, if it was scored; see ``scored``."""
    found = None
    for record in final_records(folder):
        if record["best"]:
            found = record
    return found


def failed(record: Record) -> bool:
    """Whether a script was tested and has no score: time-out, crash, invalid."""
    return record["status"] not in ("valid", INFRASTRUCTURE)


def scored(folder: Path) -> tuple[Record, int] | None:
    """The test that a run's result is taken from, and its script's place.

    The best script's; where that failed, the first of its ``fallbacks`` that did not
    fail. If all failed, the best script's again.

    Returns:
        The record and the place by validation score, 1 for the best; None without any.
    """
    best = best_final(folder)
    if best is None:
        return None
    if not failed(best):
        return best, 1
    last = {record["of"]: record for record in final_records(folder)}
    for place, of in enumerate(best.get("fallbacks", ()), 2):
        if of not in last:
            break
        if not failed(last[of]):
            return last[of], place
    return best, 1
