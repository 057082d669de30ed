"""Reading a submission out of a folder that a hostile script has left behind.

Called when every process of the script is dead, through a descriptor of the folder that
was opened before it started: nothing can be swapped any more, and no path is walked.
Contents are bytes here: never unpickled, decompressed or parsed.
"""

import contextlib
import errno
import hashlib
import os
import stat

from .protocol import Submission

#: What a script can have brought about. Anything else (no descriptors left, a disk that
#: cannot be read) is the machine's fault and must not be charged to the script.
_OF_A_SCRIPT = {
    errno.EACCES,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENODEV,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENXIO,
    errno.EPERM,
    errno.ETXTBSY,
}
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def collect(folder_fd: int, name: str, max_bytes: int) -> tuple[Submission, bytes]:
    """Return what the file `name` of an open folder holds.

    Args:
        folder_fd: descriptor of the working folder.
        name: exact file name; no other name and no extension is tried.
        max_bytes: size above which it is rejected unread.

    Accepted is a regular file with one link and at most `max_bytes` bytes.

    Raises:
        OSError: the machine fails, by no doing of the script.
    """
    with contextlib.suppress(OSError):
        os.fchmod(folder_fd, 0o700)  # the script may have closed its own folder
    try:
        found = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return Submission("missing", "no such file"), b""
    except OSError as error:
        return _failure("looked at", error)
    problem = _problem(found, max_bytes)
    if problem:
        return _rejected(problem, found.st_size)
    try:
        fd = _open(folder_fd, name)
    except OSError as error:
        return _failure("opened", error, found.st_size)
    try:
        opened = os.fstat(fd)
        if not os.path.samestat(found, opened):
            return _rejected("changed while it was collected")
        data = bytearray()
        while len(data) <= max_bytes:
            part = os.read(fd, min(1 << 20, max_bytes + 1 - len(data)))
            if not part:
                break
            data += part
        if len(data) > max_bytes:
            return _rejected(f"larger than {max_bytes} bytes", len(data))
    except OSError as error:
        return _failure("read", error, found.st_size)
    finally:
        os.close(fd)
    digest = hashlib.sha256(data).hexdigest()
    return Submission("ok", "", digest, len(data)), bytes(data)


def _open(folder_fd: int, name: str) -> int:
    try:
        return os.open(name, _FLAGS, dir_fd=folder_fd)
    except PermissionError:
        # Its own user forbade reading (mode 000): checked above to be a plain file
        # with one link, and nobody is left who could swap it.
        os.chmod(name, 0o600, dir_fd=folder_fd)
        return os.open(name, _FLAGS, dir_fd=folder_fd)


def _problem(found: os.stat_result, max_bytes: int) -> str:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        return f"not a regular file: {kinds.get(kind, 'of unknown type')}"
    if found.st_nlink != 1:
        return f"has {found.st_nlink} hard links"
    if found.st_size > max_bytes:
        return f"{found.st_size} bytes, larger than {max_bytes}"
    return ""


def _failure(done: str, error: OSError, n_bytes: int = 0) -> tuple[Submission, bytes]:
    if error.errno not in _OF_A_SCRIPT:
        raise error
    return _rejected(f"cannot be {done}: {error.strerror}", n_bytes)


def _rejected(reason: str, n_bytes: int = 0) -> tuple[Submission, bytes]:
    return Submission("rejected", reason, "", n_bytes), b""
