"""What /proc says of a sandbox's processes: memory and CPU time.

All paths are relative to an open folder: the /proc of the sandbox's own pid namespace.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .box import Launched


def memory_of(proc_fd: int, pid: str, *, close: bool) -> tuple[int, int]:
    """Bytes of a process, private and shared; shared pages in parts where `close`."""
    for place in _places(proc_fd, pid):
        for file, kind in (("smaps_rollup", b"Pss_%s:"), ("status", b"Rss%s:")):
            if file == "smaps_rollup" and not close:
                continue
            text = read_at(proc_fd, f"{place}/{file}")
            if kind % b"Anon" in text:
                fields = kind % b"Anon", kind % b"Shmem"
                return _kilobytes(text, fields[0]), _kilobytes(text, fields[1])
    return 0, 0


def _places(proc_fd: int, pid: str) -> Iterator[str]:
    """Where a process's memory is read: a first thread that ended has none of it,
    though the others go on."""
    yield pid
    with contextlib.suppress(OSError):
        fd = os.open(f"{pid}/task", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc_fd)
        try:
            tasks = os.listdir(fd)
        finally:
            os.close(fd)
        yield from (f"{pid}/task/{task}" for task in tasks if task != pid)


def read_at(folder_fd: int, name: str) -> bytes:
    """Up to 8 KiB of a file below an open folder; empty where it cannot be read."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder_fd)
    except OSError:
        return b""
    try:
        return os.read(fd, 8192)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _kilobytes(text: bytes, field: bytes) -> int:
    """A kB field of a file of /proc, in bytes; 0 without it."""
    for line in text.splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    return 0


def sandbox_cpu_s(launched: Launched, report: dict[str, Any]) -> float:
    """CPU seconds by /proc: the gate's count of the reaped plus whoever still lives."""
    ticks = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
    reaped, live = 0.0, 0.0
    if launched.proc_fd >= 0:
        with contextlib.suppress(OSError):
            for pid in filter(str.isdigit, os.listdir(launched.proc_fd)):
                own, children = _cpu_ticks(read_at(launched.proc_fd, f"{pid}/stat"))
                if pid == "1":
                    reaped += children / ticks
                else:
                    live += (own + children) / ticks
    elif launched.folder is not None and not report:
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{launched.child_pid}/stat").read_bytes()
            live += sum(_cpu_ticks(stat)) / ticks
    return float(report.get("cpu_s", reaped)) + live


def _cpu_ticks(stat: bytes) -> tuple[int, int]:
    fields = stat.rpartition(b")")[2].split()
    if len(fields) < 15:
        return 0, 0
    return int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
