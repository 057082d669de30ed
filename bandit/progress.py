"""What a person sees while a study runs: one bar on a terminal, else a line a cell."""

import sys
import threading
import time
from typing import Protocol, TextIO

from tqdm import tqdm


class Watcher(Protocol):
    """What is told how a study goes; may be called from several threads at a time."""

    def begin(self, trial_steps: int, done: int, cells: int) -> None:
        """``cells`` cells, ``done`` of them finished before; what is left to do."""

    def stepped(self, trial_steps: int) -> None:
        """Trial-steps were done since the last call."""

    def finished(self, name: str, seconds: float) -> None:
        """A cell is on disk."""

    def end(self) -> None:
        """Nothing more comes."""


class Silent:
    """Shows nothing."""

    def begin(self, trial_steps: int, done: int, cells: int) -> None:
        """See ``Watcher``."""

    def stepped(self, trial_steps: int) -> None:
        """See ``Watcher``."""

    def finished(self, name: str, seconds: float) -> None:
        """See ``Watcher``."""

    def end(self) -> None:
        """See ``Watcher``."""


class Lines:
    """One line for each finished cell: for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._lock = threading.Lock()
        self._done = self._cells = 0
        self._began = time.monotonic()

    def begin(self, trial_steps: int, done: int, cells: int) -> None:
        """See ``Watcher``."""
        self._done, self._cells = done, cells
        if done:
            self._print(f"resuming: {done} of {cells} cells are done")

    def stepped(self, trial_steps: int) -> None:
        """See ``Watcher``."""

    def finished(self, name: str, seconds: float) -> None:
        """See ``Watcher``."""
        with self._lock:
            self._done += 1
            since = time.monotonic() - self._began
            self._print(
                f"{self._done} of {self._cells} cells: {name} in {seconds:.0f} s, "
                f"{since:.0f} s in all"
            )

    def end(self) -> None:
        """See ``Watcher``."""

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class Bar:
    """One bar over all trial-steps: for a terminal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bar: tqdm | None = None
        self._done = self._cells = 0

    def begin(self, trial_steps: int, done: int, cells: int) -> None:
        """See ``Watcher``."""
        self._done, self._cells = done, cells
        if trial_steps:
            self._bar = tqdm(
                total=trial_steps,
                unit="step",
                unit_scale=True,
                smoothing=0.05,
                mininterval=0.5,
                dynamic_ncols=True,
                desc=f"{done} of {cells} cells",
            )

    def stepped(self, trial_steps: int) -> None:
        """See ``Watcher``."""
        with self._lock:
            if self._bar is not None:
                self._bar.update(trial_steps)

    def finished(self, name: str, seconds: float) -> None:
        """See ``Watcher``."""
        with self._lock:
            self._done += 1
            if self._bar is not None:
                self._bar.set_description(f"{self._done} of {self._cells} cells")

    def end(self) -> None:
        """See ``Watcher``."""
        with self._lock:
            if self._bar is not None:
                self._bar.close()
                self._bar = None


def watcher() -> Watcher:
    """A bar where standard error is a terminal, else lines."""
    return Bar() if sys.stderr.isatty() else Lines()
