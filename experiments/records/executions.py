"""A table of executions: what each script took and scored every time it ran.

One folder for a task. ``table.json`` says what all rows share: task, data, limits,
processor. ``rows.jsonl`` has one line for each run of a script, appended under a lock
and synced, so several processes may fill one table and a killed one leaves nothing
half. ``scripts/`` has the texts, for another machine to measure again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.config.errors import LedgerError, UsageError
from experiments.records.ledger import cut_torn, parse, write_all
from experiments.records.rundir import write_json

FACTS = "table.json"
ROWS = "rows.jsonl"

Row = dict[str, Any]


class Executions:
    """The rows of a folder; opened by as many processes as like.

    Args:
        folder: made if it is missing.
        facts: what every row of it shares.

    Raises:
        UsageError: the folder's rows were measured under other facts.
        LedgerError: it cannot be written.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.folder = folder
        try:
            (folder / "scripts").mkdir(parents=True, exist_ok=True)
            self._file = _open(folder / ROWS)
            self._claims = _open(folder / ".claims")
        except OSError as error:
            raise _trouble(folder, error) from error
        self._rows: dict[str, list[Row]] = {}
        self._read = 0
        self._lock = threading.RLock()
        with self._writing():
            self._agree(dict(facts))

    def _agree(self, facts: dict[str, Any]) -> None:
        path = self.folder / FACTS
        if not path.exists():
            write_json(path, facts)
            return
        stored = json.loads(path.read_text("utf-8"))
        differ = [n for n in sorted(facts | stored) if facts.get(n) != stored.get(n)]
        if differ:
            shown = "; ".join(
                f"{n} {stored.get(n)!r}, here {facts.get(n)!r}" for n in differ
            )
            raise UsageError(
                f"--executions=table: {self.folder} was measured under other "
                f"conditions ({shown}): choose another folder"
            )

    def find(self, program: str) -> list[Row]:
        """The runs of a program so far, in their order."""
        with self._lock:
            path = self.folder / ROWS
            with path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
            for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
                row = parse(line, path, self._read)
                self._rows.setdefault(row["program"], []).append(row)
                self._read += len(line)
            return list(self._rows.get(program, ()))

    def add(self, row: Row, script: bytes) -> None:
        """Append one run of a program and sync it.

        Raises:
            LedgerError: the disk refuses; the rows so far are whole.
        """
        line = json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n"
        try:
            place = self.folder / "scripts" / f"{row['program']}.py"
            if not place.exists():
                place.write_bytes(script)
            with self._writing():
                cut_torn(self._file)
                write_all(self._file, line.encode("utf-8", errors="replace"))
                os.fsync(self._file)
        except OSError as error:
            raise _trouble(self.folder, error) from error

    @contextlib.contextmanager
    def claim(self, program: str) -> Iterator[None]:
        """Measure a program alone: others who want it wait, then find its rows.

        A process that dies gives its claims back. Threads of one process do not
        exclude each other.
        """
        at = int(program[:14], 16)
        fcntl.lockf(self._claims, fcntl.LOCK_EX, 1, at)
        try:
            yield
        finally:
            fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, at)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the files back; closing twice is fine."""
        for name in ("_file", "_claims"):
            fd = getattr(self, name)
            if fd >= 0:
                os.close(fd)
                setattr(self, name, -1)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def _trouble(folder: Path, error: OSError) -> LedgerError:
    return LedgerError(
        f"cannot write the table of executions in {folder} "
        f"({error.strerror or error}): what it holds is whole; free some space or fix "
        "the permissions, then --resume"
    )
