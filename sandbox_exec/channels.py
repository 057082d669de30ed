"""The descriptors between a harness and one sandbox."""

import contextlib
import os
import socket
import sys
from dataclasses import dataclass

_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


@dataclass
class Channels:
    """Two sockets (orders, 'go') and two pipes (the script's output).

    Attributes:
        ours, theirs: the ends of both sockets.
        reads, writes: the ends of both pipes.
    """

    ours: list[socket.socket]
    theirs: list[socket.socket]
    reads: list[int]
    writes: list[int]

    @classmethod
    def open(cls) -> "Channels":
        """Open everything or nothing.

        Raises:
            OSError: no descriptors are left.
        """
        made = cls([], [], [], [])
        try:
            for _ in range(2):
                ours, theirs = socket.socketpair()
                made.ours.append(ours)
                made.theirs.append(theirs)
            for _ in range(2):
                read, write = os.pipe()
                made.reads.append(read)
                made.writes.append(write)
        except OSError:
            made.close_ours()
            made.close_theirs()
            raise
        for fd in made.reads:
            os.set_blocking(fd, False)
        if sys.platform.startswith("linux"):
            import fcntl

            for fd in made.writes:
                with contextlib.suppress(OSError):  # the user's quota of pipe pages
                    fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
        return made

    def close_ours(self) -> None:
        """Close the harness's ends: nothing was started."""
        for item in self.ours:
            item.close()
        for fd in self.reads:
            os.close(fd)

    def close_theirs(self) -> None:
        """Close the sandbox's ends: it has its own copies, or there is none."""
        for item in self.theirs:
            item.close()
        for fd in self.writes:
            os.close(fd)


def memfd(data: bytes) -> int:
    """A descriptor from which `data` can be read."""
    fd = os.memfd_create("sandbox_exec", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd
