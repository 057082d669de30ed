"""Reading, writing and removing control groups as the files that they are."""

import contextlib
import errno
import os
import signal
import time
from pathlib import Path

#: File system, root inside it, mount point, super options.
Mount = tuple[str, str, str, set[str]]


def mounts() -> list[Mount]:
    """Every cgroup mount that we see."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        head, tail = left.split(), right.split()
        if tail[0] in ("cgroup", "cgroup2"):
            found.append((tail[0], head[3], head[4], set(tail[2].split(","))))
    return found


def own_groups() -> dict[str, str]:
    """Our group per v1 controller; the v2 one under the empty name."""
    groups = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            groups[name] = path
    return groups


def place(mount_root: str, mount_point: str, path: str) -> Path:
    """Where group `path` appears below its mount point."""
    if mount_root != "/" and (path + "/").startswith(mount_root + "/"):
        path = path[len(mount_root) :]
    place = Path(mount_point, path.lstrip("/"))
    return place if place.is_dir() else Path(mount_point)


def read(path: Path) -> str:
    """Text of a control file."""
    return path.read_text(encoding="ascii", errors="replace").strip()


def write(path: Path, text: str | int) -> None:
    """Set a control file."""
    # One unbuffered write: the kernel reports its verdict on exactly that call.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(text).encode())
    finally:
        os.close(fd)


def rmdir(path: Path, *, patience_s: float = 2.0) -> None:
    """Remove a group whose processes are dead or dying; kill what still sits in it."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        with contextlib.suppress(OSError):
            kill_members(path)
        time.sleep(0.002)


def kill_members(path: Path) -> None:
    """SIGKILL every process of a group that this pid namespace can name.

    Raises:
        OSError: the group cannot be read.
    """
    for pid in map(int, read(path / "cgroup.procs").split()):
        # The kernel writes 0 for a process of another namespace: that would be us.
        if pid > 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def remove_tree(path: Path) -> None:
    """Remove a harness's group and the run groups below it, killing any survivor."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(os.scandir(path), key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False):
                rmdir(Path(entry.path))
        rmdir(path)
