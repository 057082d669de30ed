"""A sandbox at its gate: the handles to time, watch, kill and empty it."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import SandboxError
from .janitor import remove_folder
from .shm import SHM, ShmUse


@dataclass
class Launched:
    """A sandbox at its gate, and the handles to time, watch, kill and empty it."""

    process: subprocess.Popen[bytes]
    ctrl: socket.socket
    go: socket.socket
    stdout: int
    stderr: int
    init_pid: int = 0
    child_pid: int = 0
    init_pidfd: int = -1
    child_pidfd: int = -1
    work_fd: int = -1
    tmpfs_fds: list[int] = field(default_factory=list)
    proc_fd: int = -1
    folder: Path | None = None
    shm: ShmUse | None = None
    inbox: bytearray = field(default_factory=bytearray)

    def messages(self) -> list[dict[str, Any]] | None:
        """What the gate has said since; None when it has hung up."""
        closed = False
        try:
            while True:
                part = self.ctrl.recv(65536)
                if not part:
                    closed = True
                    break
                self.inbox += part
        except BlockingIOError:
            pass
        except OSError:
            closed = True
        *lines, rest = bytes(self.inbox).split(b"\n")
        self.inbox[:] = rest
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return None if closed and not found else found

    def kill(self, *, patience_s: float = 10.0) -> None:
        """Kill every process of the sandbox and wait until they are gone.

        Raises:
            SandboxError: something could not be killed in time.
        """
        if self.folder is not None:
            self._end_by_gate(patience_s)
            return
        if self.init_pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init_pidfd, signal.SIGKILL)
            # bubblewrap's own process returns earlier than the namespace is empty.
            if not wait_readable(self.init_pidfd, patience_s):
                raise SandboxError("the sandbox's process 1 does not die (disk hung?)")
        else:
            self.process.kill()
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _end_by_gate(self, patience_s: float) -> None:
        with contextlib.suppress(OSError):
            self.ctrl.shutdown(socket.SHUT_WR)
            self.process.send_signal(signal.SIGCONT)  # a script may have stopped it
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in (self.child_pid, self.process.pid):
            if pid:
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)

    def close(self) -> None:
        """Close every descriptor and remove the temp folder."""
        self.ctrl.close()
        self.go.close()
        fds = [self.stdout, self.stderr, self.init_pidfd, self.child_pidfd]
        for fd in (*fds, self.work_fd, self.proc_fd, *self.tmpfs_fds):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self.tmpfs_fds.clear()
        if self.shm is not None:
            SHM.end(self.shm)
            self.shm = None
        if self.folder is not None:
            remove_folder(self.folder)


def wait_readable(fd: int, timeout_s: float) -> bool:
    """Wait until a descriptor has something to say; False after `timeout_s` seconds."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
