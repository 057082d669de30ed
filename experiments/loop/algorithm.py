"""Algorithm 1: sample, execute, grade, record, price, learn.

The loop owns no policy, sandbox or grader; it is given them. What it knows is a pure
function of its ledger (``accounts.py``), so a run that was killed is loaded by
reading, and a run is replayed by feeding its ledger to the same code.
"""

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.config.errors import Diverged, LoopError
from experiments.loop.accounts import Accounts
from experiments.loop.gather import Gatherer
from experiments.loop.hooks import Hooks
from experiments.loop.horizon import Horizon, Pace, budget_of
from experiments.records.ledger import Ledger
from experiments.records.phases import PHASES, Phases, Unfinished
from experiments.records.recorded import (
    ATTEMPTS,
    INFRASTRUCTURE,
    METRICS,
    Located,
    Recording,
    by_step,
    check_metrics,
    need_whole,
)
from experiments.records.spec import RunSpec
from experiments.records.virtual_time import step_seconds


class _Lost(LoopError):
    """Every attempt of a step met an infrastructure error."""


class Loop:
    """One run of one arm. After an exception it is over: close it, resume in a new one.

    Args:
        folder: of the run; it exists.
        spec: what is run.
        hooks: policy, sandbox, grader and prompts.
        resume: go on with what the folder holds.
        replay: folder of a run whose records are fed in place of execution and grading;
            every number must come out as it is on record there.
        clock: seconds, for the phases.

    Raises:
        LoopError: the folder holds attempts and ``resume`` is false, or its records do
            not agree with each other.
    """

    def __init__(
        self,
        folder: Path | str,
        spec: RunSpec,
        hooks: Hooks,
        *,
        resume: bool = False,
        replay: Path | str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.folder, self.spec, self.hooks = Path(folder), spec, hooks
        self.accounts = Accounts(spec)
        self._pace = Pace()
        self.total_s = 0.0
        self.phase_s = dict.fromkeys(PHASES, 0.0)
        self._clock = clock
        self._unfinished = Unfinished(self.folder)
        with contextlib.ExitStack() as stack:
            self._ledger = stack.enter_context(Ledger(self.folder / ATTEMPTS))
            self._metrics = stack.enter_context(
                Ledger(self.folder / METRICS, key="step")
            )
            if len(self._ledger) and (replay or not resume):
                raise LoopError(
                    f"{self.folder} holds {len(self._ledger)} attempts already: add "
                    "--resume to go on with them, or choose another folder"
                )
            self.next_step = hooks.policy.restore() if resume else 0
            self._kept = self.next_step  # the step of the last checkpoint
            self._recording = (
                Recording(Path(replay), replay=True)
                if replay
                else Recording(self.folder, first=self.next_step)
            )
            self._gatherer = Gatherer(
                self.folder, spec, hooks, self._ledger, self._recording, clock
            )
            self._rebuild()
            self._stack = stack.pop_all()

    def _rebuild(self) -> None:
        """Account for the steps that the policy's checkpoint has learned from."""
        if not self.next_step:
            return
        metrics = Recording(self.folder)
        reached = 0
        for step, located in by_step(self._ledger.path):
            if step >= self.next_step:
                break
            need_whole(step, located, self.spec.protocol.chains)
            done = metrics.metrics(step)
            horizon = self._horizon(step, done)
            _, numbers = self.accounts.take(step, located, horizon)
            if step != reached or done is None:
                break
            check_metrics(done, numbers)
            self._count(done["seconds"])
            reached = step + 1
        if reached != self.next_step:
            raise LoopError(
                f"the checkpoint of {self.folder} knows {self.next_step} steps, its "
                f"records {reached}: restore the folder from a copy"
            )

    def _count(self, seconds: dict[str, float]) -> None:
        for name, value in seconds.items():
            self.phase_s[name] += value
            self.total_s += value
        self._pace.add(self.used())

    def _horizon(self, step: int, done: dict[str, Any] | None) -> Horizon:
        """What is left before a step, under the budget that it has on record."""
        return self._pace.horizon(budget_of(done, self.spec.budget), step)

    @property
    def repaired(self) -> int:
        """Bytes of torn last lines that opening the records has cut off."""
        return self._ledger.repaired + self._metrics.repaired

    @property
    def replaying(self) -> bool:
        """Whether records take the place of execution."""
        return self._recording.replay

    @property
    def exhausted(self) -> bool:
        """Whether a replay has come to the end of its record."""
        return self._recording.replay and self.next_step >= self._recording.steps

    def used(self) -> dict[str, float]:
        """What the run has used so far: steps, and seconds on the three clocks.

        ``total`` is the wall time of its own phases; ``attempt`` and ``execution`` are
        means over chains of the seconds of their attempts.
        """
        return {
            "steps": self.next_step,
            "total": self.total_s,
            "attempt": float(self.accounts.attempt_s.mean()),
            "execution": float(self.accounts.execution_s.mean()),
        }

    def step(self) -> dict[str, Any]:
        """Run one step; its record, as in ``metrics.jsonl``.

        Raises:
            Stopped: Ctrl-C; what had finished is in the ledger.
            Diverged: the update gave no finite number.
            LoopError: one line that says what happened and how to go on.
        """
        step = self.next_step
        phases = self._phases(step)
        try:
            generations, located = self._gatherer.attempts(
                step,
                self.accounts.next_states(),
                self.accounts.errors,
                self.accounts.best,
                self.accounts.firsts if self.accounts.reuses else None,
                phases,
            )
            self._need_data(step, located)
            horizon = self._horizon(step, self._recording.metrics(step))
            signals, numbers = self.accounts.take(step, located, horizon)
            numbers["learn"] = {}
            if self.spec.arm.gradient:
                with phases("update"):
                    learned = self.hooks.policy.learn(step, generations, signals)
                numbers["learn"] = self._finite(step, learned)
            return self._commit(step, numbers, self._seconds(located, phases))
        except _Lost:
            # Their scripts run again: a broken machine is not the run's expense.
            phases.mark(without=("execute", "grade"))
            raise
        except BaseException:
            phases.mark()
            raise

    def _seconds(self, located: list[Located], phases: Phases) -> dict[str, float]:
        spec = self.spec
        if spec.virtual is None:
            return phases.done()
        records = [record for _, record in located]
        rule, gradient = spec.scoring.rule, spec.arm.gradient
        return step_seconds(spec.virtual, rule, records, gradient=gradient)

    def _need_data(self, step: int, located: list[Located]) -> None:
        if all(r["status"] == INFRASTRUCTURE for _, r in located):
            raise _Lost(
                f"step {step}: every attempt met an infrastructure error (the first: "
                f"{located[0][1]['reason']}). Nothing was learned from it; put that "
                "right and --resume"
            )

    def _phases(self, step: int) -> Phases:
        """The step's seconds, with those from before a stop; committed ones count."""
        if self._recording.metrics(step) is not None or self.replaying:
            return Phases(self._clock)
        before = self._unfinished.load(step)
        if before is None:
            kept = self._gatherer.drafts.load(step)
            before = {"sample": float(sum(g.seconds.sum() for g in kept))}
        return Phases(
            self._clock, before, lambda spent: self._unfinished.keep(step, spent)
        )

    def _finite(self, step: int, learned: dict[str, float]) -> dict[str, float]:
        learned = {name: float(value) for name, value in learned.items()}
        bad = [name for name, value in learned.items() if not math.isfinite(value)]
        if bad:
            raise Diverged(
                f"{self.spec.name}, step {step}: the update's {bad[0]} is "
                f"{learned[bad[0]]}. The step is not committed; its attempts are in "
                "the ledger. Start again with a lower --lr and another --out: resuming "
                "would come to the same"
            )
        return learned

    def _commit(
        self, step: int, numbers: dict[str, Any], seconds: dict[str, float]
    ) -> dict[str, Any]:
        done = self._recording.metrics(step)
        if done is not None:
            check_metrics(done, numbers)
            seconds = done["seconds"]
        self._count(seconds)
        self.next_step = step + 1
        numbers |= {"seconds": seconds, "used": self.used(), "finished_at": time.time()}
        if done is not None:
            numbers["finished_at"] = done["finished_at"]
        if step not in self._metrics:
            self._metrics.append(numbers)
            self._unfinished.drop()
        if self.next_step % self.spec.checkpoint_every == 0:
            self.checkpoint()
        return numbers

    def checkpoint(self) -> None:
        """Keep the policy's state, unless it is kept; drop drafts that it knows."""
        if self.next_step == self._kept:
            return
        meta = {"ledger_offset": self._ledger.size, "rho": self.accounts.rate.rate}
        self.hooks.policy.save(self.next_step, meta)
        self._gatherer.drafts.discard(self.next_step)
        self._kept = self.next_step

    def close(self) -> None:
        """Give the files back; closing twice is fine."""
        self._stack.close()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
