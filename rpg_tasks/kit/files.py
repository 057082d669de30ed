"""Files and archives: written so that their bytes depend on their content alone."""

import csv
import errno
import os
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

# Archives must not tell when (in which order) their members were made.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_csv(
    frame: pd.DataFrame, path: Path, quoting: int = csv.QUOTE_MINIMAL
) -> None:
    """Write a table without its index; make the folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, quoting=quoting)


def csv_bytes(frame: pd.DataFrame, quoting: int = csv.QUOTE_MINIMAL) -> bytes:
    """The bytes that `write_csv` would write."""
    text: str = frame.to_csv(index=False, quoting=quoting)
    return text.encode("utf-8")


def write_file(path: Path, data: bytes) -> None:
    """Write bytes; make the folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_zip(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write a zip whose members are sorted by name and carry one fixed date."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in sorted(members):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data, compresslevel=3)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text, each with a newline."""
    write_file(path, "".join(f"{line}\n" for line in lines).encode())


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it where the file system cannot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if isinstance(error, FileNotFoundError | FileExistsError):
            raise
        shutil.copyfile(source, target)


def fresh_copy(source: Path, target: Path) -> None:
    """Copy bytes alone: a link's inode or a kept date may tell the old name's order."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


def files_in(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder that match, sorted by name.

    Raises:
        FileNotFoundError: there is none.
    """
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(errno.ENOENT, "holds no such files", str(folder))
    return found
