"""Append-only JSON lines on disk: the records of truth of a run.

A record is one line, written by one ``write`` and fsynced before ``append`` returns.
What a killed process leaves of its last line is cut off at the next opening. Readers
stream: no file is ever held in memory.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.config.errors import LedgerError

Record = dict[str, Any]

_TAIL = 1 << 16


def read(path: Path | str, *, start: int = 0) -> Iterator[tuple[int, Record]]:
    """Yield (byte offset, record) of each whole line from ``start`` on.

    A last line without its line feed was never acknowledged and is left out.

    Raises:
        LedgerError: the file is missing, or a whole line is no JSON object.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            file.seek(start)
            offset = start
            for line in file:
                if not line.endswith(b"\n"):
                    return
                yield offset, parse(line, path, offset)
                offset += len(line)
    except FileNotFoundError:
        raise LedgerError(f"there is no {path}: is this the folder of a run?") from None
    except OSError as error:
        raise LedgerError(f"cannot read {path} ({error.strerror or error})") from error


def read_at(path: Path | str, offset: int) -> Record:
    """The record that starts at this byte."""
    with Path(path).open("rb") as file:
        file.seek(offset)
        return parse(file.readline(), Path(path), offset)


def parse(line: bytes, path: Path, offset: int) -> Record:
    """The record of a whole line at a byte of a file."""
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise LedgerError(
            f"{path} is damaged at byte {offset}: no JSON record there. Restore it "
            "from a copy, or cut the file there and lose what follows"
        )
    return record


def cut_torn(file: int) -> int:
    """Cut off a last line without its line feed; how many bytes it had.

    Raises:
        OSError: the disk refuses.
    """
    size = end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - _TAIL)
        cut = os.pread(file, end - start, start).rfind(b"\n")
        if cut >= 0:
            end = start + cut + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)
        os.fsync(file)
    return size - end


def write_all(file: int, data: bytes) -> None:
    """Write all of it, in as many calls as the system takes.

    Raises:
        OSError: the disk refuses.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


class Ledger:
    """Writer of one file; one process at a time.

    Args:
        path: made if missing, with its folder there.
        key: field whose value must differ in every record.

    Attributes:
        repaired: bytes of a torn last line that opening has cut off.

    Raises:
        LedgerError: not writable, damaged, or open in another process.
    """

    def __init__(self, path: Path | str, *, key: str = "run_id"):
        self.path = Path(path)
        self.key = key
        self.repaired = 0
        self._keys: set[Any] = set()
        try:
            self._file = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise self._trouble("open", error) from error
        try:
            self._lock()
            self._repair()
            for _, record in read(self.path):
                self._keys.add(record.get(key))
            self._sync_folder()
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LedgerError(
                f"{self.path} is being written by another process: wait for it, or "
                "stop it"
            ) from None
        except OSError:
            # Some network file systems have no locks; one writer is then a promise.
            pass

    def _repair(self) -> None:
        try:
            self.repaired = cut_torn(self._file)
        except OSError as error:
            raise self._trouble("mend", error) from error

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        except OSError:
            pass  # not every file system can; the file itself is synced
        finally:
            os.close(folder)

    def _trouble(self, verb: str, error: OSError) -> LedgerError:
        return LedgerError(
            f"cannot {verb} {self.path} ({error.strerror or error}): nothing recorded "
            "so far is lost; free some space or fix the permissions, then --resume"
        )

    @property
    def size(self) -> int:
        """Bytes, all of them whole records."""
        return os.fstat(self._file).st_size

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Any) -> bool:
        return key in self._keys

    def append(self, record: Record) -> int:
        """Write one record through to the disk; its byte offset.

        Raises:
            LedgerError: the key was used before, or the disk refuses; the file then
                still ends with a whole record.
            ValueError: a NaN or an infinity, which JSON does not have.
        """
        key = record[self.key]
        if key in self._keys:
            raise LedgerError(f"{self.path} holds {self.key} {key!r} already")
        text = json.dumps(record, allow_nan=False, ensure_ascii=False)
        line = text.encode("utf-8", errors="replace") + b"\n"
        offset = self.size
        try:
            self._write(line)
            os.fsync(self._file)
        except BaseException as error:  # Ctrl-C too: the next record needs a clean end
            with contextlib.suppress(OSError):  # else the next opening cuts it off
                os.ftruncate(self._file, offset)
            if isinstance(error, OSError):
                raise self._trouble("write to", error) from error
            raise
        self._keys.add(key)
        return offset

    def _write(self, line: bytes) -> None:
        write_all(self._file, line)

    def close(self) -> None:
        """Give the file back; closing twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
