"""Ctrl-C and SIGTERM: both end a run the same way, with their own exit codes."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Terminated(KeyboardInterrupt):
    """SIGTERM; handled wherever Ctrl-C is."""


class Signals:
    """Which signal has come, if any."""

    def __init__(self) -> None:
        self.terminated = False

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM."""
        return 143 if self.terminated else 130

    def on_terminate(self, *_: object) -> None:
        """Handler of SIGTERM."""
        self.terminated = True
        raise Terminated


@contextlib.contextmanager
def catch_terminate() -> Iterator[Signals]:
    """Inside the block SIGTERM raises ``Terminated``, as Ctrl-C raises its own."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = signal.signal(signal.SIGTERM, signals.on_terminate)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGTERM, before)
