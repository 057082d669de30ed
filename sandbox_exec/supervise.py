"""The timed part: from 'go' to the exit of the main process, or to its cut."""

import contextlib
import fcntl
import select
import signal
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from .box import Launched
from .cgroup import RunCgroup
from .limits import Limits
from .output import OutputTail
from .procfs import sandbox_cpu_s
from .sample import Sampler

_SAMPLE_S = 0.05
_SAMPLE_SELDOM_S = 0.2
# As root no rlimit bounds the processes of one user, so without a control group the
# count is watched closely.
_SAMPLE_FORKS_S = 0.004

# Rest after a look at the processes, in its own CPU seconds, and its longest.
_REST_PER_LOOK, _LONGEST_REST_S = 20, 2.0

# For the stack of a script that is out of time; written within milliseconds.
_LAST_WORDS_S = 0.1

# PIDFD_GET_INFO with PIDFD_INFO_EXIT (Linux 6.15): uapi/linux/pidfd.h
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3


@dataclass
class Outcome:
    """What was seen while the script ran."""

    delta_s: float = 0.0
    killed_by: str = ""
    wait_status: int | None = None
    report: dict[str, Any] = field(default_factory=dict)
    memory_peak: int = 0
    pids_peak: int = 0
    disk_full: bool = False
    disk_bytes: int = 0
    cpu_s: float = 0.0  # at a timeout


class Supervisor:
    """Watches one script. `run` returns once it has ended or must be killed."""

    def __init__(
        self,
        launched: Launched,
        limits: Limits,
        *,
        group: RunCgroup | None,
        cancel_fd: int,
        watch_forks: bool,
    ) -> None:
        self._box = launched
        self._limits = limits
        self._group = group
        self._cancel_fd = cancel_fd
        self._watch_forks = watch_forks and group is None and launched.proc_fd >= 0
        self._sampler = Sampler(
            launched, limits, group=group, watch_forks=self._watch_forks
        )
        # Without namespaces a sample walks the whole folder: seldom, then.
        seldom = group is not None or launched.folder is not None
        self._sample_s = _SAMPLE_SELDOM_S if seldom else _SAMPLE_S
        self._tick_s = _SAMPLE_FORKS_S if self._watch_forks else self._sample_s
        self._next_sample = self._next_full = 0.0
        self.stdout = OutputTail(limits.output_kb << 10)
        self.stderr = OutputTail(limits.output_kb << 10)
        self._streams = {launched.stdout: self.stdout, launched.stderr: self.stderr}
        self.outcome = Outcome()
        self._runs_on = False

    def run(self) -> Outcome:
        """Say 'go' and watch until the main process has ended or must be stopped."""
        box, limits, outcome = self._box, self._limits, self.outcome
        poll = select.poll()
        fds = [*self._streams, box.ctrl.fileno(), box.child_pidfd, self._cancel_fd]
        for fd in fds:
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        start = time.monotonic()
        deadline = start + limits.wall_s
        self._next_sample, self._next_full = start + self._tick_s, start
        with contextlib.suppress(OSError):  # it died at the gate: seen as an exit below
            box.go.send(b"go")
        while True:
            wait_s = min(deadline, self._next_sample) - time.monotonic()
            ready = {fd for fd, _ in poll.poll(max(0.0, wait_s * 1000))}
            now = time.monotonic()
            if box.child_pidfd in ready:
                break
            if box.ctrl.fileno() in ready and self._hear():
                break
            outcome.killed_by = self._cut(ready, now >= deadline)
            if outcome.killed_by:
                break
            for fd in self._drain(ready):
                poll.unregister(fd)
            if self.stdout.total + self.stderr.total > limits.output_total_mb << 20:
                outcome.killed_by = "output_limit"
                break
            if now >= self._next_sample and self._sample(now):
                break
        outcome.delta_s = max(0.0, now - start)
        if outcome.killed_by == "timeout":
            outcome.delta_s = min(outcome.delta_s, limits.wall_s)
            outcome.cpu_s = self._cpu_s()  # once it is dead, not all levels can tell
            self._ask_where()
        return outcome

    def _ask_where(self) -> None:
        """Let a script that is out of time say where it was; then it is killed.

        SIGABRT makes Python's fault handler write its stack, whatever it was doing. It
        is charged and judged as a timeout whatever it makes of this moment.
        """
        box = self._box
        if box.child_pidfd < 0:
            return
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(box.child_pidfd, signal.SIGABRT)
        poll, end = select.poll(), time.monotonic() + _LAST_WORDS_S
        for fd in (box.child_pidfd, box.stderr):
            poll.register(fd, select.POLLIN)
        while time.monotonic() < end:
            ready = {fd for fd, _ in poll.poll(_LAST_WORDS_S * 1000)}
            if box.child_pidfd in ready:
                break
            for fd in self._drain(ready):
                poll.unregister(fd)

    def _cut(self, ready: set[int], late: bool) -> str:
        """Why the run ends whatever the script does; empty if it may go on."""
        if late:
            return "timeout"
        return "cancel" if self._cancel_fd in ready else ""

    def _drain(self, ready: set[int]) -> list[int]:
        """Read what the script wrote; return the streams that are at their end."""
        streams = self._streams
        return [fd for fd in ready & streams.keys() if not streams[fd].drain(fd)]

    def _sample(self, now: float) -> bool:
        """Look at the script and choose when to look again; True if it must stop."""
        full, used = now >= self._next_full, time.thread_time()
        self.outcome.killed_by = self._sampler.look(full=full)
        if full and not self.outcome.killed_by and self._over_cpu():
            self.outcome.killed_by = "timeout"
        if self.outcome.killed_by:
            # Seen here, it runs on until it is killed. A control group's verdict is
            # about processes that the kernel has killed.
            self._runs_on = self._group is None
            return True
        # While it looks, no exit is seen: what is expensive is done seldom. In CPU
        # time: a look that had to wait for a core is not expensive, and a long rest
        # after it would leave memory unwatched.
        rest = min(_LONGEST_REST_S, _REST_PER_LOOK * (time.thread_time() - used))
        if full:
            self._next_full = now + max(self._sample_s, rest)
        self._next_sample = now + self._tick_s if self._watch_forks else self._next_full
        return False

    def _over_cpu(self) -> bool:
        """Whether its processes have used more CPU seconds than it may."""
        limit = self._limits.cpu_s
        return limit is not None and self._cpu_s() > limit

    def _cpu_s(self) -> float:
        """CPU seconds of its processes so far."""
        group = self._group
        return sandbox_cpu_s(self._box, {}) if group is None else group.cpu_s()

    def _hear(self) -> bool:
        """Take the gate's messages; True when the run is over."""
        messages = self._box.messages()
        if messages is None:
            return True
        self._note(messages)
        return bool(self.outcome.killed_by or self.outcome.report)

    def _note(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if "over" in message and not self.outcome.killed_by:
                self.outcome.killed_by = message["over"]
            if "status" in message:
                self.outcome.report = message

    def finish(self) -> None:
        """After an exit: wait briefly for the gate's report on how it ended."""
        outcome = self.outcome
        if not self._runs_on and outcome.killed_by in ("", "oom", "pids_limit"):
            deadline = time.monotonic() + 1.0
            poll = select.poll()
            poll.register(self._box.ctrl.fileno(), select.POLLIN)
            while not outcome.report and time.monotonic() < deadline:
                poll.poll(100)
                messages = self._box.messages()
                if messages is None:
                    break
                self._note(messages)
        if "status" in outcome.report:
            outcome.wait_status = int(outcome.report["status"])
        elif outcome.killed_by == "":
            outcome.wait_status = _exit_status(self._box.child_pidfd)
        # The others still run, uncharged: nothing that takes long.
        sampler = self._sampler
        sampler.look(full=True, last=True)
        outcome.memory_peak, outcome.pids_peak = sampler.memory_peak, sampler.pids_peak
        outcome.disk_bytes, outcome.disk_full = sampler.disk_bytes, sampler.disk_full

    def drain_rest(self) -> None:
        """Every writer is dead: read what is left in the pipes."""
        for fd, tail in self._streams.items():
            for _ in range(64):  # a pipe holds 1 MiB; survivors cannot hold us up
                before = tail.total
                if not tail.drain(fd) or tail.total == before:
                    break


def _exit_status(pidfd: int) -> int | None:
    """Wait status of a process that is not our child, where the kernel tells (6.15)."""
    if pidfd < 0:
        return None
    request = bytearray(struct.pack("=QQ12I", _PIDFD_INFO_EXIT, *([0] * 13)))
    with contextlib.suppress(OSError):
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, request)
        values = struct.unpack("=QQ11Ii", request)
        if values[0] & _PIDFD_INFO_EXIT:
            return int(values[-1])
    return None
