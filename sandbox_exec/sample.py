"""What no kernel limit holds: memory, processes and disk, seen by looking at times."""

import contextlib
import os
from pathlib import Path

from .box import Launched
from .cgroup import RunCgroup
from .limits import Limits
from .procfs import memory_of, read_at


class Sampler:
    """Looks at one sandbox and keeps the largest that it saw.

    Args:
        box: the sandbox. limits: of its script.
        group: its control group; None: memory and processes are looked at here.
        watch_forks: no rlimit bounds its processes.

    Attributes:
        memory_peak: bytes. pids_peak: processes and threads. disk_bytes: files.
        disk_full: a file system of the script is used up.
    """

    def __init__(
        self,
        box: Launched,
        limits: Limits,
        *,
        group: RunCgroup | None,
        watch_forks: bool,
    ) -> None:
        self._box = box
        self._limits = limits
        self._group = group
        self._watch_forks = watch_forks
        self.memory_peak = 0
        self.pids_peak = 0
        self.disk_bytes = 0
        self.disk_full = False

    def look(self, *, full: bool, last: bool = False) -> str:
        """Look once; return the reason to stop the script, if any.

        Args:
            full: not the number of processes alone.
            last: for the record alone: no page tables are walked.
        """
        if self._watch_forks and not full:
            return self._count_forks()
        tmpfs_bytes = self._look_at_disk()
        if tmpfs_bytes < 0 and not last:
            return "disk_limit"
        if self._group is not None:
            with contextlib.suppress(OSError):
                if self._group.oom_kills() > 0:
                    return "oom"
            return ""
        if self._box.proc_fd >= 0:
            return self._look_at_processes(max(0, tmpfs_bytes), close=not last)
        return ""

    def _look_at_disk(self) -> int:
        """Bytes in the sandbox's tmpfs mounts; -1 when it holds too many files."""
        box = self._box
        if box.folder is not None:
            used, files = _folder_use(box.folder)
            self.disk_bytes = max(self.disk_bytes, used)
            if used > self._limits.disk_mb << 20 or files > self._limits.files:
                self.disk_full = True
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
                    self.disk_full = True
                if info.f_files - info.f_ffree > self._limits.files:
                    self.disk_full = True
                    total = -1 << 60
        self.disk_bytes = max(self.disk_bytes, disk)
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
        self.pids_peak = max(self.pids_peak, count)
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

    def _look_at_processes(self, tmpfs_bytes: int, *, close: bool) -> str:
        limit = self._limits.memory_mb << 20
        pids: list[str] = []
        with contextlib.suppress(OSError):
            pids = [n for n in os.listdir(self._box.proc_fd) if n.isdigit()]
        memory = self._memory(pids, tmpfs_bytes, close=False)
        if memory > limit:
            # Pages shared after a fork were counted once per process: look closely.
            memory = self._memory(pids, tmpfs_bytes, close=True) if close else 0
        self.memory_peak = max(self.memory_peak, memory)
        count = self._count_threads()
        self.pids_peak = max(self.pids_peak, count)
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
