"""Token files as FineWeb's: 256 int32 of header, then uint16 tokens.

The header begins with 20240520, 1 (the version) and the number of tokens.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rpg_tasks.task import TaskError

MAGIC, VERSION = 20240520, 1
_HEADER = 256


def token_bytes(tokens: np.ndarray) -> bytes:
    """A token file.

    Args:
        tokens: shape [N], in 0 .. 65535.
    """
    header = np.zeros(_HEADER, np.int32)
    header[:3] = MAGIC, VERSION, len(tokens)
    return header.tobytes() + tokens.astype(np.uint16).tobytes()


def read_tokens(path: Path, *, vocabulary: int | None = None) -> np.ndarray:
    """The tokens of a file, uint16, shape [N].

    Args:
        path: of the file.
        vocabulary: number of symbols, for the check of a shard's tokens.

    Raises:
        TaskError: it is not such a file, is cut short, or has other symbols.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) < 4 * _HEADER:
        raise TaskError(f"{path} is no token file: it ends inside its header")
    header = np.frombuffer(data, np.int32, _HEADER)
    if header[0] != MAGIC or header[1] != VERSION:
        raise TaskError(
            f"{path} is no token file of version {VERSION}: it begins with "
            f"{header[0]}, {header[1]}"
        )
    expected = 4 * _HEADER + 2 * int(header[2])
    if header[2] < 0 or len(data) != expected:
        raise TaskError(
            f"{path} is truncated or damaged: {len(data)} bytes, its header says "
            f"{expected}"
        )
    tokens = np.frombuffer(data, np.uint16, offset=4 * _HEADER)
    if vocabulary is not None and len(tokens) and tokens.max() >= vocabulary:
        raise TaskError(f"{path}: token {tokens.max()} is not below {vocabulary}")
    return tokens


def rows_of(tokens: np.ndarray, length: int) -> np.ndarray:
    """Rows of ``length`` inputs and their targets, int32, [rows, length + 1].

    No two rows share a token, so that none tells a target of another. What does not
    fill a row is left out.
    """
    count = len(tokens) // (length + 1)
    whole = tokens[: count * (length + 1)].astype(np.int32)
    rows: np.ndarray = whole.reshape(count, length + 1)
    return rows
