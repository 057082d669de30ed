"""A harness that is root runs scripts as nobody in particular.

Without this, a script of root's harness would be root to the kernel: without any
capability, but owner of root's files, and exempt from RLIMIT_NPROC. A user namespace
that also maps an unused id lets process 1 of the sandbox become that id for good.
"""

import contextlib
import functools
import os
import pwd
import subprocess
import sys
import threading

from .errors import SandboxError

INNER_ID = 1000
# systemd leaves 60706 to 61183 unused: https://systemd.io/UIDS-GIDS/
_FIRST, _LAST = 60706, 61183
_CLONE_NEWUSER = 0x10000000
_HOLDER = (
    "import ctypes, os, sys\n"
    f"sys.exit(1) if ctypes.CDLL(None).unshare({_CLONE_NEWUSER}) else None\n"
    "os.write(1, b'r')\n"
    "os.read(0, 1)\n"
)


class _Namespace:
    """Descriptor of a user namespace, closed with the thread that uses it."""

    def __init__(self) -> None:
        self.fd = _make()

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            os.close(self.fd)


_local = threading.local()


@functools.lru_cache(maxsize=1)
def unused_uid() -> int:
    """An id that belongs to nobody on this machine."""
    for uid in range(_FIRST, _LAST + 1):
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise SandboxError(f"every user id from {_FIRST} to {_LAST} is taken")


def namespace_fd() -> int:
    """A user namespace for scripts of this thread: root and one unused id are mapped.

    One per thread, because the kernel counts processes per namespace and id.

    Raises:
        SandboxError: it cannot be made (the caller then stays root, without
            capabilities).
    """
    held = getattr(_local, "namespace", None)
    if held is None:
        held = _local.namespace = _Namespace()
    return held.fd


def _make() -> int:
    holder = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    )
    with holder as process:  # leaving it closes its input: it ends
        assert process.stdout is not None
        try:
            if process.stdout.read(1) != b"r":
                raise SandboxError("no user namespace may be made here")
            place = f"/proc/{process.pid}"
            for name, text in (
                ("uid_map", f"0 0 1\n{INNER_ID} {unused_uid()} 1\n"),
                ("gid_map", f"{INNER_ID} {os.getegid()} 1\n"),
            ):
                fd = os.open(f"{place}/{name}", os.O_WRONLY)
                try:
                    os.write(fd, text.encode())
                finally:
                    os.close(fd)
            return os.open(f"{place}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SandboxError(f"no user namespace for another id: {error}") from error
