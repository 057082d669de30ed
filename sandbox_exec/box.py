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
    shm_before: frozenset[str] = frozenset()
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
        if self.folder is not None:
            clean_shm(self.shm_before)
            remove_folder(self.folder)


def wait_readable(fd: int, timeout_s: float) -> bool:
    """Wait until a descriptor has something to say; False after `timeout_s` seconds."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def shm_names() -> frozenset[str]:
    """What lies in the host's /dev/shm."""
    try:
        return frozenset(os.listdir("/dev/shm"))
    except OSError:
        return frozenset()


def clean_shm(before: frozenset[str]) -> None:
    """Remove shared memory that a script without its own /dev/shm left behind.

    New names of our own user that no live process has mapped: the scripts of other
    slots and the harness keep theirs.
    """
    new = shm_names() - before
    if not new:
        return
    used = ""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                used += Path(entry.path, "maps").read_text(errors="replace")
    for name in new:
        path = Path("/dev/shm", name)
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.getuid() or str(path) in used:
                continue
            if path.is_dir() and not path.is_symlink():
                remove_folder(path)
            else:
                path.unlink()
