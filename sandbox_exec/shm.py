"""The host's /dev/shm, where scripts without their own leave things behind.

Slots share it. What is new when a script has ended may be another script's that still
runs: a semaphore that its workers have yet to open, a folder of arrays.
"""

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from .janitor import remove_folder

_PLACE = Path("/dev/shm")
# The clock of file times ticks more seldom than ours.
_TICK_NS = 50_000_000


@dataclass(eq=False)
class ShmUse:
    """One script's time with /dev/shm: from its start to its end."""

    before: frozenset[str] = frozenset()
    started_ns: int = field(default_factory=time.time_ns)


class ShmKeeper:
    """Removes what ended scripts of this process left, and nothing of living ones."""

    def __init__(self, place: Path = _PLACE) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._active: set[ShmUse] = set()
        self._pending: set[str] = set()

    def begin(self) -> ShmUse:
        """A script is about to start."""
        use = ShmUse(self._names())
        with self._lock:
            self._active.add(use)
        return use

    def end(self, use: ShmUse) -> None:
        """A script is over: remove what can only be of scripts that are over.

        That are new names of our own user, changed last before every living script of
        ours started, and not mapped by any process. The others wait for a later end.
        """
        with self._lock:
            self._active.discard(use)
            self._pending |= self._names() - use.before
            starts = [other.started_ns for other in self._active]
            mapped: set[int] | None = None
            for name in sorted(self._pending):
                path = self._place / name
                try:
                    found = path.lstat()
                except OSError:
                    self._pending.discard(name)
                    continue
                if any(start <= found.st_ctime_ns + _TICK_NS for start in starts):
                    continue
                self._pending.discard(name)
                mapped = _mapped_inodes() if mapped is None else mapped
                if found.st_uid == os.getuid() and found.st_ino not in mapped:
                    with contextlib.suppress(OSError):
                        remove_folder(path)  # a file as well; links are not followed

    def _names(self) -> frozenset[str]:
        try:
            return frozenset(os.listdir(self._place))
        except OSError:
            return frozenset()


def _mapped_inodes() -> set[int]:
    """Files of any /dev/shm that live processes have mapped.

    By number: a semaphore is mapped under the name that it had for a moment.
    """
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = Path(entry.path, "maps").read_text(errors="replace")
                for line in text.splitlines():
                    words = line.split(maxsplit=5)
                    if len(words) == 6 and words[5].startswith("/dev/shm/"):
                        found.add(int(words[4]))
    return found


SHM = ShmKeeper()
