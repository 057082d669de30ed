"""Landlock rules for machines without user namespaces.

Access bits, rule layout and what each ABI added: Linux ``uapi/linux/landlock.h`` and
``Documentation/userspace-api/landlock.rst``.
"""

import ctypes
import functools
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from .cpu_view import SYS_CPU, core_folders
from .environment import Environment
from .seccomp import ASKED, build_filter, numbers

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_SOCK = 1 << 9
_ABI1_ALL = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

# What a program may read under /proc and /sys, beyond its own folder.
_READABLE = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/lib32",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/proc/cpuinfo",
    "/proc/meminfo",
    # Read by joblib where they exist: how much CPU time our own group may use.
    "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
)


@functools.lru_cache(maxsize=1)
def abi() -> int:
    """Landlock ABI of the running kernel; 0 without Landlock."""
    if not sys.platform.startswith("linux"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    version = libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, int(version))


def signals_scoped() -> bool:
    """Whether Landlock keeps a script from signalling the user's other processes."""
    return abi() >= 6


def rules(
    env: Environment,
    *,
    own: Iterable[Path],
    inputs: Path | None,
    cores: tuple[int, ...],
    start: Path,
) -> dict[str, object]:
    """Return the gate's instructions: handled rights, allowed paths, seccomp filter.

    Args:
        env: interpreter to show.
        own: the folders that may be written.
        inputs: folder to show read-only.
        cores: of the slot, which the script may not leave; empty: not pinned.
        start: folder of what each of the script's interpreters runs first.
    """
    version = abi()
    handled = _ABI1_ALL
    handled |= _REFER if version >= 2 else 0
    handled |= _TRUNCATE if version >= 3 else 0
    handled |= _IOCTL_DEV if version >= 5 else 0
    everything = handled & ~_IOCTL_DEV

    paths: list[tuple[str, int]] = []

    def allow(path: str, access: int) -> None:
        if os.path.exists(path):
            access &= handled
            paths.append((path, access if os.path.isdir(path) else access & _FILE_ONLY))

    for path in (*_READABLE, *env.folders, str(start)):
        allow(path, _READ)
    # Whoever cannot read how many cores the machine has counts those he may use.
    for path in core_folders(cores) if cores else ("/proc/stat", SYS_CPU):
        allow(path, _READ)
    if _names_nobody(Path("/etc/hosts")):
        allow("/etc/hosts", _READ)
    if inputs is not None:
        allow(str(inputs.resolve()), _READ)
    allow("/proc/self", _READ)
    allow("/dev/null", _READ_FILE | _WRITE_FILE | _TRUNCATE)
    # Semaphores of multiprocessing live here; the runner removes what is left behind.
    # Nothing moves between it and the script's folders, sockets least of all.
    allow("/dev/shm", everything & ~(_EXECUTE | _REFER | _MAKE_SOCK))
    own = tuple(own)
    for folder in own:
        allow(str(folder), everything)
    return {
        "fs": handled,
        "net": 3 if version >= 4 else 0,  # bind and connect over TCP
        "scope": 3 if version >= 6 else 0,  # abstract sockets, signals
        "attr_size": 24 if version >= 6 else 16 if version >= 4 else 8,
        "paths": paths,
        "calls": numbers((*ASKED, "seccomp")),
        "own": [str(folder) for folder in own],
        "seccomp": build_filter(sockets=False, affinity=not cores).hex(),
    }


def hide_modules(folder: Path) -> None:
    """Hide what cannot work here, in a folder that is first on the script's path.

    psutil reads /proc of other processes, which shows the whole machine's: joblib asks
    it for its workers' memory, fails, and does without where there is no psutil.
    """
    why = "psutil needs all of /proc, which is hidden here"
    text = f"raise ModuleNotFoundError({why!r}, name='psutil')"
    (folder / "psutil.py").write_text(text + "\n", encoding="ascii")


def _names_nobody(hosts: Path) -> bool:
    """Whether a hosts file tells no more than the names of this machine itself."""
    try:
        lines = hosts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    addresses = [line.partition("#")[0].split()[:1] for line in lines]
    special = ("127.", "::1", "fe00::", "ff00::", "ff02::")
    return all(found[0].startswith(special) for found in addresses if found)
