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
        special = _special(os.path.realpath(folder), found.st_ino, found.st_mtime_ns)
    except OSError as error:
        raise SandboxError(
            f"the inputs folder cannot be used: {folder}: {error.strerror}"
        ) from error
    if special:
        raise SandboxError(
            f"refuses the inputs {folder}: {special} is not a file, folder or link"
        )


@functools.lru_cache(maxsize=256)
def _special(folder: str, inode: int, changed_ns: int) -> str:
    queue = [folder]
    while queue:
        with os.scandir(queue.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    queue.append(entry.path)
                elif not (entry.is_symlink() or entry.is_file(follow_symlinks=False)):
                    return entry.path
    return ""
