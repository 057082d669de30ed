"""The timed part: from 'go' to the exit of the main process, or to its cut."""

import contextlib
import fcntl
import os
import select
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

from .box import Launched
from .cgroup import RunCgroup
from .limits import Limits
from .output import OutputTail
from .procfs import memory_of, read_at

_SAMPLE_S = 0.05
_SAMPLE_SELDOM_S = 0.2
# As root no rlimit bounds the processes of one user, so without a control group the
# count is watched closely.
_SAMPLE_FORKS_S = 0.004

# Rest after a look at the processes, in its own CPU seconds, and its longest.
_REST_PER_LOOK, _LONGEST_REST_S = 20, 2.0

# PIDFD_GET_INFO with PIDFD_INFO_EXIT (Linux 6.15): uapi/linux/pidfd.h
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3


@dataclass
class Outcome:
    """What was seen while the script ran."""

    delta_s: float = 0.0
    killed_by: str = ""
    wait_status: int | None = None
    report: dict = field(default_factory=dict)
    memory_peak: int = 0
    pids_peak: int = 0
    disk_full: bool = False
    disk_bytes: int = 0


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
        # Without namespaces a sample walks the whole folder: seldom, then.
        seldom = group is not None or launched.folder is not None
        self._sample_s = _SAMPLE_SELDOM_S if seldom else _SAMPLE_S
        self.stdout = OutputTail(limits.output_kb << 10)
        self.stderr = OutputTail(limits.output_kb << 10)
        self.outcome = Outcome()
        self._runs_on = False

    def run(self) -> Outcome:
        """Say 'go' and watch until the main process has ended or must be stopped."""
        box, limits, outcome = self._box, self._limits, self.outcome
        poll = select.poll()
        streams = {box.stdout: self.stdout, box.stderr: self.stderr}
        for fd in streams:
            poll.register(fd, select.POLLIN)
        ctrl = box.ctrl.fileno()
        poll.register(ctrl, select.POLLIN)
        if box.child_pidfd >= 0:
            poll.register(box.child_pidfd, select.POLLIN)
        if self._cancel_fd >= 0:
            poll.register(self._cancel_fd, select.POLLIN)
        output_cap = limits.output_total_mb << 20
        tick = _SAMPLE_FORKS_S if self._watch_forks else self._sample_s

        start = time.monotonic()
        deadline, next_sample, next_full = start + limits.wall_s, start + tick, start
        with contextlib.suppress(OSError):  # it died at the gate: seen as an exit below
            box.go.send(b"go")
        while True:
            wait_s = min(deadline, next_sample) - time.monotonic()
            events = poll.poll(max(0.0, wait_s * 1000))
            now = time.monotonic()
            ready = {fd for fd, _ in events}
            if box.child_pidfd in ready:
                break
            if ctrl in ready and self._hear():
                break
            if now >= deadline:
                outcome.killed_by = "timeout"
                break
            if self._cancel_fd in ready:
                outcome.killed_by = "cancel"
                break
            for fd in ready & streams.keys():
                if not streams[fd].drain(fd):
                    poll.unregister(fd)
            if self.stdout.total + self.stderr.total > output_cap:
                outcome.killed_by = "output_limit"
                break
            if now >= next_sample:
                full, used = now >= next_full, time.thread_time()
                outcome.killed_by = self._sample(full=full)
                if outcome.killed_by:
                    # Seen here, it runs on until it is killed. A control group's
                    # verdict is about processes that the kernel has killed.
                    self._runs_on = self._group is None
                    break
                # While it looks, no exit is seen: what is dear is done seldom. In CPU
                # time: a look that had to wait for a core is not a dear one, and a
                # long rest after it would leave memory unwatched.
                used = time.thread_time() - used
                rest = min(_LONGEST_REST_S, _REST_PER_LOOK * used)
                if full:
                    next_full = now + max(self._sample_s, rest)
                next_sample = now + tick if self._watch_forks else next_full
        outcome.delta_s = max(0.0, now - start)
        if outcome.killed_by == "timeout":
            outcome.delta_s = limits.wall_s
        return outcome

    def _hear(self) -> bool:
        """Take the gate's messages; True when the run is over."""
        messages = self._box.messages()
        if messages is None:
            return True
        for message in messages:
            if "over" in message and not self.outcome.killed_by:
                self.outcome.killed_by = message["over"]
            if "status" in message:
                self.outcome.report = message
        return bool(self.outcome.killed_by or self.outcome.report)

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
                for message in messages or ():
                    if "status" in message:
                        outcome.report = message
                    elif "over" in message and not outcome.killed_by:
                        outcome.killed_by = message["over"]
                if messages is None:
                    break
        if "status" in outcome.report:
            outcome.wait_status = int(outcome.report["status"])
        elif outcome.killed_by == "":
            outcome.wait_status = _exit_status(self._box.child_pidfd)
        # The others still run, uncharged: nothing that takes long.
        self._sample(full=True, close=False)

    def drain_rest(self) -> None:
        """Every writer is dead: read what is left in the pipes."""
        for fd, tail in (
            (self._box.stdout, self.stdout),
            (self._box.stderr, self.stderr),
        ):
            for _ in range(64):  # a pipe holds 1 MiB; survivors cannot hold us up
                before = tail.total
                if not tail.drain(fd) or tail.total == before:
                    break

    def _sample(self, *, full: bool, close: bool = True) -> str:
        """Look at what no kernel limit holds; return the reason to stop, if any.

        Args:
            full: not the number of processes alone.
            close: walk page tables where it decides.
        """
        if self._watch_forks and not full:
            return self._count_forks()
        tmpfs_bytes = self._look_at_disk()
        if self.outcome.killed_by == "" and tmpfs_bytes < 0:
            return "disk_limit"
        if self._group is not None:
            with contextlib.suppress(OSError):
                if self._group.oom_kills() > 0:
                    return "oom"
            return ""
        if self._box.proc_fd >= 0:
            return self._sample_processes(max(0, tmpfs_bytes), close=close)
        return ""

    def _look_at_disk(self) -> int:
        """Bytes in the sandbox's tmpfs mounts; -1 when it holds too many files."""
        box, outcome = self._box, self.outcome
        if box.folder is not None:
            used, files = _folder_use(box.folder)
            outcome.disk_bytes = max(outcome.disk_bytes, used)
            if used > self._limits.disk_mb << 20 or files > self._limits.files:
                outcome.disk_full = True
                return -1
            return 0
        total = disk = 0
        for fd in (box.work_fd, *box.tmpfs_fds):
            with contextlib.suppress(OSError):
                info = os.fstatvfs(fd)
                used = (info.f_blocks - info.f_bfree) * info.f_frsize
                total += used
                if fd != box.tmpfs_fds[-1]:  # the last one is /dev/shm
                    disk += used
                if info.f_bfree * info.f_frsize < 1 << 16:
                    outcome.disk_full = True
                if info.f_files - info.f_ffree > self._limits.files:
                    outcome.disk_full = True
                    total = -1 << 60
        outcome.disk_bytes = max(outcome.disk_bytes, disk)
        return total if total >= 0 else -1

    def _count_forks(self) -> str:
        """Cheap check first: the newest pid of the namespace is in /proc/loadavg."""
        try:
            fd = os.open("loadavg", os.O_RDONLY, dir_fd=self._box.proc_fd)
        except OSError:
            return ""
        try:
            newest = int(os.read(fd, 200).split()[4])
        except (OSError, IndexError, ValueError):
            return ""
        finally:
            os.close(fd)
        if newest <= self._limits.pids:
            return ""
        count = self._count_threads()
        self.outcome.pids_peak = max(self.outcome.pids_peak, count)
        return "pids_limit" if count > self._limits.pids else ""

    def _count_threads(self) -> int:
        """Processes and threads of the sandbox, its process 1 left out."""
        count = 0
        with contextlib.suppress(OSError):
            for pid in filter(str.isdigit, os.listdir(self._box.proc_fd)):
                fields = read_at(self._box.proc_fd, f"{pid}/stat").rpartition(b")")
                words = fields[2].split()
                count += int(words[17]) if len(words) > 17 else 0
        return max(0, count - 1)

    def _sample_processes(self, tmpfs_bytes: int, *, close: bool) -> str:
        limit = self._limits.memory_mb << 20
        pids: list[str] = []
        with contextlib.suppress(OSError):
            pids = [n for n in os.listdir(self._box.proc_fd) if n.isdigit()]
        memory = self._memory(pids, tmpfs_bytes, close=False)
        if memory > limit:
            # Pages shared after a fork were counted once per process: look closely.
            memory = self._memory(pids, tmpfs_bytes, close=True) if close else 0
        outcome = self.outcome
        outcome.memory_peak = max(outcome.memory_peak, memory)
        count = self._count_threads()
        outcome.pids_peak = max(outcome.pids_peak, count)
        if memory > limit:
            return "oom"
        if self._watch_forks and count > self._limits.pids:
            return "pids_limit"
        return ""

    def _memory(self, pids: list[str], tmpfs_bytes: int, *, close: bool) -> int:
        """Bytes of private memory, and of shared memory or tmpfs.

        Shared anonymous memory lies in no mount that is measured; a mapped file of a
        tmpfs is counted twice, so that of the two the larger counts.
        """
        anon = shmem = 0
        for pid in pids:
            own, shared = memory_of(self._box.proc_fd, pid, close=close)
            anon, shmem = anon + own, shmem + shared
            if close and anon + max(shmem, tmpfs_bytes) > self._limits.memory_mb << 20:
                break  # more of them would not change the verdict
        return anon + max(shmem, tmpfs_bytes)


def _folder_use(folder: Path) -> tuple[int, int]:
    """Disk bytes and entries below a folder; bounded effort, links not followed."""
    total = seen = 0
    queue = [os.fspath(folder)]
    while queue and seen < 300_000:
        with contextlib.suppress(OSError), os.scandir(queue.pop()) as entries:
            for entry in entries:
                seen += 1
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
    return total, seen


def _exit_status(pidfd: int) -> int | None:
    """Wait status of a process that is not our child, where the kernel tells (6.15)."""
    if pidfd < 0:
        return None
    request = bytearray(struct.pack("=QQ12I", _PIDFD_INFO_EXIT, *([0] * 13)))
    with contextlib.suppress(OSError):
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, request)
        values = struct.unpack("=QQ11Ii", request)
        if values[0] & _PIDFD_INFO_EXIT:
            return values[-1]
    return None
