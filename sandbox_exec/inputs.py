"""Inputs are files: a socket, FIFO or device among them would be a way out."""

import functools
import os
import stat
from pathlib import Path

from .errors import SandboxError


def check_inputs(folder: Path) -> None:
    """Refuse a folder that is missing or holds anything but files, folders and links.

    A read-only mount does not stop a script from connecting to a socket of the host.
    The walk is remembered per folder until the folder's own entries change.

    Raises:
        SandboxError: missing, unreadable, or a special file was found.
    """
    try:
        found = os.stat(folder)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(20, "not a folder")
        special, _ = _look(os.path.realpath(folder), found.st_ino, found.st_mtime_ns)
    except OSError as error:
        raise SandboxError(
            f"the inputs folder cannot be used: {folder}: {error.strerror}"
        ) from error
    if special:
        raise SandboxError(
            f"refuses the inputs {folder}: {special} is not a file, folder or link"
        )


def readable_by_all(folder: Path) -> bool:
    """Whether a user without any rights could read everything in the folder."""
    found = os.stat(folder)
    return _look(os.path.realpath(folder), found.st_ino, found.st_mtime_ns)[1]


@functools.lru_cache(maxsize=256)
def _look(folder: str, inode: int, changed_ns: int) -> tuple[str, bool]:
    """(first special file, whether everything is readable by all)."""
    open_to_all = os.stat(folder).st_mode & 0o005 == 0o005
    queue = [folder]
    while queue:
        with os.scandir(queue.pop()) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    queue.append(entry.path)
                    open_to_all &= mode & 0o005 == 0o005
                elif stat.S_ISREG(mode):
                    open_to_all &= mode & 0o004 == 0o004
                elif not stat.S_ISLNK(mode):
                    return entry.path, open_to_all
    return "", open_to_all
