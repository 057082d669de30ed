"""Execute: scripts of a step in the sandbox, graded and recorded as they finish."""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple

from experiments.loop import grade
from experiments.loop.hooks import Hooks
from experiments.loop.repeats import repeat_of
from experiments.records.ledger import Ledger
from experiments.records.phases import Phases
from experiments.records.recorded import Located
from experiments.records.spec import RunSpec
from sandbox_exec.protocol import RunRecord


class Started(NamedTuple):
    """An attempt that has a script at work, or needs none."""

    identity: dict[str, Any]
    generation_s: float


class Execution:
    """The scripts of one step.

    Args:
        spec: of the run.
        hooks: sandbox and grader.
        ledger: where records go.
        phases: takes the times.
        clock: seconds.
        best: best value of earlier steps.

    Attributes:
        done: records by chain.
    """

    def __init__(
        self,
        spec: RunSpec,
        hooks: Hooks,
        ledger: Ledger,
        phases: Phases,
        clock: Callable[[], float],
        best: float | None,
    ):
        self._spec, self._hooks, self._ledger = spec, hooks, ledger
        self._phases, self._clock, self._best = phases, clock, best
        self._waiting: dict[Future[RunRecord], Started] = {}
        self._followers: dict[int, list[Started]] = {}
        self.done: dict[int, Located] = {}

    def start(self, started: Started, script: bytes) -> None:
        """Hand a script to the sandbox."""
        try:
            future = self._hooks.execute(started.identity["run_id"], script)
        except Exception as error:  # a pool that is gone: the attempt is not at fault
            future = Future()
            future.set_exception(error)
        self._waiting[future] = started

    def without_script(self, started: Started, reason: str) -> None:
        """Record an answer that holds no script."""
        self._record(started, grade.without_script(reason), None, 0.0)

    def repeat(self, started: Started, first: dict[str, Any]) -> None:
        """Record an attempt whose program has run: ``first`` is that run's record."""
        rule = self._spec.scoring.rule
        self._keep(
            repeat_of(
                started.identity, first, rule=rule, generation_s=started.generation_s
            )
        )

    def follow(self, started: Started, chain: int) -> None:
        """Repeat what a chain of this step runs, once that is over."""
        if chain in self.done:
            self.repeat(started, self.done[chain][1])
        else:
            self._followers.setdefault(chain, []).append(started)

    def collect(self) -> None:
        """Grade and record the runs that are over."""
        with self._phases("grade"):
            for future in [f for f in self._waiting if f.done()]:
                started = self._waiting.pop(future)
                begin = self._clock()
                try:
                    fields, score = grade.outcome(future.result(), self._hooks.grade)
                except Exception as error:
                    reason = f"sandbox: {type(error).__name__}: {error}"
                    fields, score = grade.infrastructure(reason), None
                self._record(started, fields, score, self._clock() - begin)

    def finish(self) -> None:
        """Wait for what is still at work; what stays silent for too long is lost."""
        while self._waiting:
            with self._phases("execute"):
                over, _ = wait(
                    self._waiting,
                    timeout=self._spec.patience_s,
                    return_when=FIRST_COMPLETED,
                )
            if over:
                self.collect()
                continue
            reason = f"sandbox: no script finished for {self._spec.patience_s:g} s"
            for future, started in self._waiting.items():
                future.cancel()
                self._record(started, grade.infrastructure(reason), None, 0.0)
            return

    def _record(
        self,
        started: Started,
        fields: dict[str, Any],
        score: float | None,
        grading_s: float,
    ) -> None:
        record = grade.finish(
            started.identity,
            fields,
            score,
            scoring=self._spec.scoring,
            generation_s=started.generation_s,
            grading_s=grading_s,
            best=self._best,
        )
        self._keep(record)
        for follower in self._followers.pop(record["chain"], ()):
            self.repeat(follower, record)

    def _keep(self, record: dict[str, Any]) -> None:
        offset = self._ledger.append(record)
        self._phases.mark()
        self.done[record["chain"]] = (offset, record)
