"""What is on record of a run's private test."""

from __future__ import annotations

from collections.abc import Sequence
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
    return _best(final_records(folder))


def _best(records: Sequence[Record]) -> Record | None:
    return next((one for one in reversed(records) if one.get("best")), None)


def failed(record: Record) -> bool:
    """Whether a script was tested and has no score: time-out, crash, invalid."""
    return record["status"] not in ("valid", INFRASTRUCTURE)


def scored(folder: Path) -> tuple[Record, int] | None:
    """``scored_of`` what is on record of a run."""
    return scored_of(final_records(folder))


def scored_of(records: Sequence[Record]) -> tuple[Record, int] | None:
    """The test that a run's result is taken from, and its script's place.

    The best script's; where that failed, the first of its ``fallbacks`` that did not
    fail. If all failed, the best script's again.

    Args:
        records: of the run's private test, in the order in which they were written.

    Returns:
        The record and the place by validation score, 1 for the best; None without any.
    """
    best = _best(records)
    if best is None:
        return None
    if not failed(best):
        return best, 1
    last = {record["of"]: record for record in records}
    for place, of in enumerate(best.get("fallbacks", ()), 2):
        if of not in last:
            break
        if not failed(last[of]):
            return last[of], place
    return best, 1
