"""Names of what a harness leaves on a machine, and whether that harness is gone.

A name holds the pid, its start time (pids are used again), the pid namespace and the
machine's boot: two containers or machines that share a folder or a control group cannot
see each other's processes, and must not take each other's things for abandoned.
"""

import contextlib
import os
from pathlib import Path

_PREFIX = "sbx"


def process_start(pid: int) -> int:
    """Start time of `pid` in clock ticks since boot: with the pid, a unique name.

    Raises:
        OSError: there is no such process, or no /proc.
    """
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[19])


def _pid_namespace() -> int:
    with contextlib.suppress(OSError):
        return os.stat("/proc/self/ns/pid").st_ino
    return 0


def _boot() -> int:
    """This machine since its start; the first pid namespace has one number anywhere."""
    with contextlib.suppress(OSError, ValueError):
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return int(text[:8], 16)
    return 0


def owner_name(pid: int) -> str:
    """Name of what belongs to process `pid` of this pid namespace and machine.

    Raises:
        OSError: there is no such process, or no /proc.
    """
    return f"{_PREFIX}-{pid}-{process_start(pid)}-{_pid_namespace()}-{_boot()}"


def is_abandoned(name: str) -> bool:
    """Whether a name is that of a process of our pid namespace that is gone.

    What a machine's earlier boot left in a folder on disk is not recognised.
    """
    parts = name.split("-")[:5]
    if len(parts) < 5 or parts[0] != _PREFIX or not all(map(str.isdigit, parts[1:])):
        return False
    if parts[3:] != [str(_pid_namespace()), str(_boot())]:
        return False
    try:
        return owner_name(int(parts[1])) != "-".join(parts)
    except (OSError, ValueError):
        return True
