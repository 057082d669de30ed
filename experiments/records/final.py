"""What is on record of a run's private test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.records.ledger import read

FINAL = "final.jsonl"

Record = dict[str, Any]


def final_records(folder: Path) -> list[Record]:
    """What is on record of a run's private test; empty without any."""
    if not (folder / FINAL).exists():
        return []
    return [record for _, record in read(folder / FINAL)]


def best_final(folder: Path) -> Record | None:
    """The last word on the run's best script, if it was scored."""
    found = None
    for record in final_records(folder):
        if record["best"]:
            found = record
    return found
