"""Waits for the death of its harness and removes what that could not remove itself.

Started as ``python -I -S janitor.py PARENT_PID``; stands alone (standard library only).
Standard input carries one path per line, ``cgroup PATH`` or ``folder PATH``; it ends
when the harness does, and so does a pidfd of the harness (which a forked copy of the
harness that still holds our input cannot keep alive).
"""

# ruff: noqa: SIM105  (importing contextlib would cost more than all else here)

import errno
import os
import select
import signal
import sys
import time


def main() -> None:
    """Collect paths until the harness is gone, then clean up."""
    parent = int(sys.argv[1])
    poll = select.poll()
    poll.register(0, select.POLLIN)
    if hasattr(os, "pidfd_open"):
        try:
            poll.register(os.pidfd_open(parent), select.POLLIN)
        except OSError:
            pass
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pending, alive = b"", os.getppid() == parent
    while alive:
        for fd, _ in poll.poll():
            if fd != 0:
                alive = False
                # What it wrote last is still in the pipe.
                if not select.select([0], [], [], 0)[0]:
                    continue
            data = os.read(0, 65536)
            pending += data
            alive = alive and bool(data)
    jobs = [line.partition(b" ") for line in pending.splitlines()]
    # Groups first: emptying them kills whoever might still write to a folder.
    for kind, _, path in sorted(jobs):
        try:
            if kind == b"cgroup":
                remove_groups(path)
            elif kind == b"folder":
                remove_folder(path)
        except OSError:
            pass


def remove_groups(path: bytes) -> None:
    """Kill what sits in a tree of control groups and remove the tree."""
    try:
        children = [e.path for e in os.scandir(path) if e.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for child in children:
        remove_groups(child)
    for _ in range(1000):
        try:
            os.rmdir(path)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
        try:
            with open(os.path.join(path, b"cgroup.procs")) as stream:
                for pid in map(int, stream):
                    if pid > 0:  # 0: of another pid namespace; kill(0) would be us
                        os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            pass
        time.sleep(0.002)


def remove_folder(path: "str | bytes | os.PathLike[str]") -> None:
    """Remove a folder that a script has filled: any names, modes and depth.

    Links are removed, never followed. Nested folders are lifted to the top before they
    are emptied, so that no path grows long and nothing recurses.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        try:
            os.unlink(path)
        except OSError:
            pass
        return
    try:
        serial = 0
        while True:
            os.fchmod(top, 0o700)
            entries = os.listdir(top)
            if not entries:
                break
            progress = False
            for name in entries:
                try:
                    serial = _remove_entry(top, name, serial)
                    progress = True
                except FileNotFoundError:
                    progress = True
                except OSError:
                    continue
            if not progress:
                break
    finally:
        os.close(top)
    try:
        os.rmdir(path)
    except OSError:
        pass


def _remove_entry(top: int, name: str, serial: int) -> int:
    """Remove one entry of the folder `top`, or lift its subfolders into `top`."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        os.unlink(name, dir_fd=top)
        return serial
    except (IsADirectoryError, PermissionError):  # Linux, macOS
        pass
    try:
        fd = os.open(name, flags, dir_fd=top)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=top)
        fd = os.open(name, flags, dir_fd=top)
    try:
        os.fchmod(fd, 0o700)
        for child in os.listdir(fd):
            try:
                os.unlink(child, dir_fd=fd)
            except (IsADirectoryError, PermissionError):
                os.chmod(child, 0o700, dir_fd=fd)
                while True:
                    serial += 1
                    try:
                        os.rename(child, f"up{serial}", src_dir_fd=fd, dst_dir_fd=top)
                        break
                    except (FileExistsError, NotADirectoryError, IsADirectoryError):
                        continue
                    except OSError as error:
                        if error.errno != errno.ENOTEMPTY:
                            raise
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)
    return serial


if __name__ == "__main__":
    main()
