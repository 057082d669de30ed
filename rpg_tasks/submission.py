"""Reading a submission as what it is: bytes from an untrusted script.

The file may be a link to the answers, a pipe that never ends, a gigabyte, or text in
another encoding. ``read_submission`` opens it without following links or blocking,
reads at most a set number of bytes, and parses with pandas exactly as MLE-Bench does,
so that a dtype is inferred the same way there and here.
"""

from __future__ import annotations

import dataclasses
import io
import os
import stat
from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.task import TaskError

# A submission is at most some 30 times larger than its answers (0/1 against 17 digits);
# the floor leaves room for small tasks, the ceiling bounds the parser's memory.
MIN_LIMIT_BYTES = 16 << 20
MAX_LIMIT_BYTES = 512 << 20
SIZE_FACTOR = 64
# A header line this long is not a header: the parser would make a column per comma.
MAX_HEADER_BYTES = 1 << 20
MAX_COLUMNS = 5_000  # the widest sample submission has 121


# Decimal text becomes the nearest double; since pandas 3.1 that is the only behaviour.
_EXACT = (
    {"float_precision": "round_trip"}
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    else {}
)


class InvalidSubmission(ValueError):
    """The submission breaks a rule; the message is the reason shown to the agent.

    Attributes:
        status: ``invalid`` for a broken rule, ``error`` when the metric itself failed
            on what the file holds, ``nan`` when it has no value. None of them is a
            score.
    """

    def __init__(self, reason: str, status: str = "invalid") -> None:
        super().__init__(reason)
        self.status = status


def size_limit(answers_bytes: int) -> int:
    """Largest accepted submission, in bytes, for answers of this size in bytes."""
    return min(max(MIN_LIMIT_BYTES, SIZE_FACTOR * answers_bytes), MAX_LIMIT_BYTES)


def _too_large(name: str, limit_bytes: int) -> str:
    return f"{name} is larger than {limit_bytes / 2**20:.0f} MiB"


def read_regular_file(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """The bytes of a regular file, without following links or waiting on a pipe.

    Args:
        path: the file; its last component must not be a symbolic link.
        limit_bytes: the largest accepted size, in bytes.

    Raises:
        InvalidSubmission: missing, not a regular file, a link, unreadable, or too
        large.
    """
    name = Path(path).name
    flags = os.O_RDONLY | os.O_CLOEXEC
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise InvalidSubmission(f"there is no file {name}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if os.path.islink(path):
            raise InvalidSubmission(f"{name} is a symbolic link") from None
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidSubmission(f"{name} cannot be opened: {why}") from None
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise InvalidSubmission(f"{name} is not a regular file")
    with open(descriptor, "rb") as file:
        if info.st_size > limit_bytes:
            raise InvalidSubmission(_too_large(name, limit_bytes))
        data = file.read(limit_bytes + 1)  # the file may grow while it is read
    if len(data) > limit_bytes:
        raise InvalidSubmission(_too_large(name, limit_bytes))
    return data


def parse_csv(data: bytes, name: str) -> pd.DataFrame:
    """A table from CSV bytes: UTF-8 with or without BOM, any line ending.

    Types are inferred as MLE-Bench infers them (``pandas.read_csv`` with exact decimal
    conversion). Text columns come back as ``object`` under every pandas version, so
    that missing values, sorting and comparison do not depend on it.

    Args:
        data: the file's bytes.
        name: how messages call the file.

    Raises:
        InvalidSubmission: not UTF-8, empty, or not a table.
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidSubmission(
            f"{name} is not UTF-8 text (byte 0x{data[error.start]:02x} "
            f"at position {error.start})"
        ) from None
    header = data[: MAX_HEADER_BYTES + 1].lstrip(b"\xef\xbb\xbf\r\n")
    header = header.splitlines()[0] if header else b""
    if len(header) > MAX_HEADER_BYTES - 8 or header.count(b",") > MAX_COLUMNS:
        raise InvalidSubmission(f"the first line of {name} is too long for a header")
    try:
        table = pd.read_csv(io.BytesIO(data), **_EXACT)
    except (ValueError, OverflowError, RecursionError) as error:
        # ParserError and EmptyDataError are ValueErrors.
        text = " ".join(str(error).split())
        raise InvalidSubmission(f"{name} is not a CSV table: {text}") from None
    for position, dtype in enumerate(table.dtypes):
        if not isinstance(dtype, np.dtype):
            column = table.iloc[:, position].astype(object)
            table.isetitem(position, column)
    table.columns = table.columns.astype(object)
    if not isinstance(table.index, pd.RangeIndex) and table.index.dtype != object:
        table.index = table.index.astype(object)
    return table


@dataclasses.dataclass(frozen=True)
class Table:
    """A parsed CSV file and its bytes."""

    frame: pd.DataFrame
    data: bytes


def parse_submission(data: bytes, name: str, limit_bytes: int) -> Table:
    """A submission's bytes as a table; see ``parse_csv``.

    Raises:
        InvalidSubmission: larger than ``limit_bytes``, or not a table.
    """
    if len(data) > limit_bytes:
        raise InvalidSubmission(_too_large(name, limit_bytes))
    return Table(parse_csv(data, name), data)


def read_submission(path: str | os.PathLike[str], limit_bytes: int) -> Table:
    """The submission as a table; see ``read_regular_file`` and ``parse_csv``."""
    data = read_regular_file(path, limit_bytes)
    return parse_submission(data, Path(path).name, limit_bytes)


def read_answers(path: str | os.PathLike[str]) -> Table:
    """The answers as a table.

    Raises:
        TaskError: the answers cannot be read; that is never the submission's fault.
    """
    try:
        data = Path(path).read_bytes()
        return Table(parse_csv(data, Path(path).name), data)
    except FileNotFoundError:
        raise TaskError(f"there is no answers file {path}") from None
    except (OSError, InvalidSubmission) as error:
        raise TaskError(f"the answers {path} cannot be read: {error}") from error


def _written(table: Table, column: str) -> pd.Series:
    text = pd.read_csv(
        io.BytesIO(table.data), usecols=[column], dtype=str, keep_default_na=False
    )[column]
    return text.astype(object)


def distinct_ids(table: Table, answers: Table, column: str) -> tuple[Table, Table]:
    """Both tables with ids compared as text where numbers would merge them.

    pandas reads ``007`` and ``7``, or ``1e5`` and ``100000``, as one number. Where that
    makes two ids of the answers equal, both sides keep the ids as they were written;
    elsewhere nothing changes, and ``300.0`` still stands for ``300``.

    Args:
        table: the submission.
        answers: the answers; ids are looked at here first.
        column: the id column.
    """
    if column not in answers.frame.columns or column not in table.frame.columns:
        return table, answers
    ids = answers.frame[column]
    if ids.dtype == object or ids.is_unique:
        return table, answers
    written = _written(answers, column)
    if written.nunique() == ids.nunique():
        return table, answers
    given = _written(table, column)
    return (
        dataclasses.replace(table, frame=table.frame.assign(**{column: given})),
        dataclasses.replace(answers, frame=answers.frame.assign(**{column: written})),
    )
