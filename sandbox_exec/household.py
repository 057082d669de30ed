"""What one harness process owns: its control groups, its temp folder, its janitor.

Made when the first pool or run needs it and removed with the last one; the janitor
removes it when the harness is killed.
"""

import atexit
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from .cgroup import CgroupTree, open_tree, sweep_stale
from .janitor import remove_folder
from .owner import is_abandoned, owner_name

_JANITOR = Path(__file__).with_name("janitor.py")


class Household:
    """Reference-counted owner of everything that must not outlive this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._pid = os.getpid()
        self._tree: CgroupTree | None = None
        self._folder: Path | None = None
        self._janitor: subprocess.Popen[bytes] | None = None
        self._serial = itertools.count(1)
        self._swept = False

    def acquire(self) -> None:
        """Announce a user."""
        with self._lock:
            self._forget_after_fork()
            self._users += 1

    def release(self) -> None:
        """Take leave; the last user removes everything."""
        with self._lock:
            self._users -= 1
            if self._users <= 0:
                self._users = 0
                self.remove()

    def _forget_after_fork(self) -> None:
        # A forked copy of the harness owns nothing of its parent's.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._users = 0
            self._tree = self._folder = self._janitor = None

    def tree(self) -> CgroupTree:
        """This process's control groups.

        Raises:
            CgroupUnavailable: the machine allows none.
        """
        with self._lock:
            if self._tree is None:
                if not self._swept:
                    self._swept = True
                    sweep_stale()
                self._tree = open_tree()
                for root in dict.fromkeys(self._tree.roots.values()):
                    self._tell(f"cgroup {root}")
            return self._tree

    def folder(self) -> Path:
        """A private temp folder of this process.

        Raises:
            OSError: the disk is full or not writable.
        """
        with self._lock:
            if self._folder is None:
                _sweep_folders()
                self._folder = Path(tempfile.mkdtemp(prefix=_prefix()))
                self._tell(f"folder {self._folder}")
            return self._folder

    def run_name(self) -> str:
        """A name for one run, unique in this process."""
        return f"run{next(self._serial)}"

    def _tell(self, line: str) -> None:
        if self._janitor is None:
            self._janitor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_JANITOR), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        pipe = self._janitor.stdin
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.write(line.encode("utf-8", "surrogateescape") + b"\n")
            pipe.flush()

    def remove(self) -> None:
        """Remove everything now; runs must be over."""
        with self._lock:
            if self._pid != os.getpid():
                return
            if self._tree is not None:
                with contextlib.suppress(OSError):
                    self._tree.remove()
                self._tree = None
            if self._folder is not None:
                remove_folder(self._folder)
                self._folder = None
            if self._janitor is not None:
                assert self._janitor.stdin is not None
                with contextlib.suppress(OSError):
                    self._janitor.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._janitor.wait(5)
                self._janitor = None


def _prefix() -> str:
    try:
        return f"{owner_name(os.getpid())}-"
    except OSError:  # a system without /proc: nobody can tell whether we are gone
        return f"sbx-{os.getpid()}-"


def _sweep_folders() -> None:
    """Remove temp folders of harnesses that were killed together with their janitor."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(tempfile.gettempdir())):
            with contextlib.suppress(OSError):
                ours = entry.stat(follow_symlinks=False).st_uid == os.getuid()
                if (
                    ours
                    and is_abandoned(entry.name)
                    and entry.is_dir(follow_symlinks=False)
                ):
                    remove_folder(entry.path)


HOUSEHOLD = Household()
atexit.register(HOUSEHOLD.remove)
