"""Seconds of a step by phase, kept through a stop: what was spent is not free."""

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

PHASES = ("sample", "execute", "grade", "update", "other")
UNFINISHED = "unfinished.json"

Seconds = dict[str, float]


class Phases:
    """Seconds by phase; what lies between them is ``other``.

    Args:
        clock: seconds.
        before: what earlier processes had spent in the same step.
        keep: told of the seconds so far by ``mark``.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        before: Mapping[str, float] | None = None,
        keep: Callable[[Seconds], None] | None = None,
    ):
        self._clock, self._keep = clock, keep
        self._begin = clock()
        self._before = dict.fromkeys(PHASES, 0.0) | dict(before or {})
        self._spent = dict.fromkeys(PHASES, 0.0)
        self._open: tuple[str, float] | None = None

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the time inside a ``with`` block to a phase; blocks do not nest."""
        self._open = (name, self._clock())
        try:
            yield
        finally:
            self._spent[name] += self._clock() - self._open[1]
            self._open = None

    def done(self) -> Seconds:
        """Seconds of each phase so far, in ``PHASES``."""
        now, spent = self._clock(), dict(self._spent)
        if self._open is not None:
            spent[self._open[0]] += now - self._open[1]
        rest = now - self._begin - sum(spent.values())
        spent["other"] = max(rest, 0.0)
        return {name: self._before[name] + spent[name] for name in PHASES}

    def mark(self, without: tuple[str, ...] = ()) -> None:
        """Have the seconds so far kept.

        Args:
            without: phases whose time counts for nothing.
        """
        if self._keep is not None:
            self._keep(self.done() | dict.fromkeys(without, 0.0))


class Unfinished:
    """The seconds of the step that is not committed yet, in a small file.

    Written after every answer and every attempt, so that even a killed process loses
    little. It is no record of truth: where it is gone, the run goes on.
    """

    def __init__(self, folder: Path):
        self.path = folder / UNFINISHED

    def load(self, step: int) -> Seconds | None:
        """What is known to be spent in this step, None if nothing is."""
        try:
            found = json.loads(self.path.read_text("utf-8"))
            seconds = {name: float(found["seconds"][name]) for name in PHASES}
            known = found["step"] == step
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not known or not all(0 <= s < math.inf for s in seconds.values()):
            return None
        return seconds

    def keep(self, step: int, seconds: Seconds) -> None:
        """Write it. Not synced: a machine that loses power may lose some seconds."""
        partial = self.path.with_name(f"{UNFINISHED}.partial")
        # A full disk stops the run where records are written, with a message.
        with contextlib.suppress(OSError):
            partial.write_text(json.dumps({"step": step, "seconds": seconds}), "utf-8")
            os.replace(partial, self.path)

    def drop(self) -> None:
        """The step is committed."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
