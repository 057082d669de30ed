"""Seconds of work: wall time less the time in which JAX compiles.

Arms share compiled programs. The arm whose turn it is when a new prompt length comes up
compiles for all of them; that is neither its generation time nor part of its budget.
"""

import time
from collections.abc import Callable

_COMPILATION = "/jax/core/compile/"


class WorkClock:
    """A clock that stands still during compilation.

    Args:
        clock: wall time, seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        # Disjoint intervals, newest last; an inner one is replaced by its outer one.
        self._spans: list[tuple[float, float]] = []
        self._closed = 0.0
        self._listening = False

    def listen(self) -> "WorkClock":
        """Start to notice compilation; itself."""
        import jax

        if not self._listening:
            jax.monitoring.register_event_duration_secs_listener(self._event)
            self._listening = True
        return self

    def _event(self, event: str, duration_secs: float, **_: str | int) -> None:
        if not event.startswith(_COMPILATION):
            return
        end = self._clock()
        begin = end - duration_secs
        while self._spans and self._spans[-1][0] >= begin:
            self._spans.pop()
        if self._spans:
            begin = max(begin, self._spans[-1][1])
        self._spans.append((begin, end))
        if len(self._spans) > 1000:
            self._closed += sum(b - a for a, b in self._spans[:500])
            del self._spans[:500]

    @property
    def compiled_s(self) -> float:
        """Seconds of compilation so far."""
        return self._closed + sum(b - a for a, b in self._spans)

    def __call__(self) -> float:
        """Seconds of work."""
        return self._clock() - self.compiled_s


#: The process's clock: compilation is the process's, not a run's.
WORK_CLOCK = WorkClock()
