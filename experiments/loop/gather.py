"""One step's attempts: prompts, answers, runs and grades, recorded as they finish."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.errors import LoopError, ReplayError, Stopped
from experiments.loop import grade as attempt
from experiments.loop.accounts import Cell
from experiments.loop.select import Entry
from experiments.policies.base import Policy
from experiments.records.drafts import Drafts, Generation
from experiments.records.ledger import Ledger, read_at
from experiments.records.phases import Phases
from experiments.records.recorded import Located, Recording, check_script
from rpg_tasks.prompts import Attempt
from sandbox_exec.protocol import RunRecord


class Hooks(NamedTuple):
    """What the loop is given.

    Attributes:
        policy: writes answers and learns.
        execute: (run_id, script) -> future of the sandbox's record, at once.
        grade: the record of a run that left a submission -> ``Grade``.
        describe: the previous attempt, or None -> prompt; None for an attempt that no
            prompt can show: the chain then gets the base prompt and has no parent.
    """

    policy: Policy
    execute: Callable[[str, bytes], "Future[RunRecord]"]
    grade: Callable[[RunRecord], Any]
    describe: Callable[[Attempt | None], str | None]


class _Waiting(NamedTuple):
    identity: dict[str, Any]
    generation_s: float


class Gatherer:
    """Turns parents into records of attempts.

    Args:
        folder: of the run.
        cell: what is run.
        hooks: policy, sandbox, grader and prompts.
        ledger: where records go.
        recording: attempts that are on record already.
    """

    def __init__(
        self,
        folder: Path,
        cell: Cell,
        hooks: Hooks,
        ledger: Ledger,
        recording: Recording,
        clock: Callable[[], float],
    ):
        self.cell, self.hooks = cell, hooks
        self._ledger, self._recording, self._clock = ledger, recording, clock
        self.drafts = Drafts(folder / "drafts")
        self._texts = attempt.Texts(folder / "scripts")

    def attempts(
        self,
        step: int,
        parents: Sequence[Entry | None],
        best: float | None,
        phases: Phases,
    ) -> tuple[list[Generation], list[Located]]:
        """Have every chain's answer run and graded; records in the chains' order.

        Args:
            step: number of the step.
            parents: per chain, None for the base prompt.
            best: best value of earlier steps.
            phases: takes the times.

        Raises:
            Stopped: Ctrl-C; what had finished is in the ledger.
        """
        self._best, self._phases = best, phases
        prompts, parents = self._prompts(parents)
        on_record = self._recording.attempts(step)
        generations: list[Generation] = []
        done: dict[int, Located] = {}
        waiting: dict[Future, _Waiting] = {}
        try:
            for generation in self._generations(step, prompts, phases):
                generations.append(generation)
                for at, row in enumerate(generation.rows):
                    text, seconds = generation.texts[at], float(generation.seconds[at])
                    parent = parents[row]
                    if row in on_record or self._recording.replay:
                        done[row] = self._known(step, row, text, on_record)
                        continue
                    identity, script = self._identity(
                        step, row, text, parent, prompts[row]
                    )
                    started = _Waiting(identity, seconds)
                    if isinstance(script, bytes):
                        waiting[self._execute(identity["run_id"], script)] = started
                    else:
                        fields = attempt.without_script(script)
                        done[row] = self._record(started, fields, None, 0.0)
                with phases("grade"):
                    self._collect(waiting, done)
            self._wait(waiting, done, phases)
        except KeyboardInterrupt:
            with phases("grade"):
                self._collect(waiting, done)
            raise Stopped(
                f"stopped in step {step}: {len(done)} of {len(prompts)} of its "
                f"attempts and all steps before it are in {self._ledger.path}; go on "
                "with --resume"
            ) from None
        generations.sort(key=lambda group: group.rows[0])
        return generations, [done[row] for row in range(len(prompts))]

    def _prompts(
        self, parents: Sequence[Entry | None]
    ) -> tuple[list[str], list[Entry | None]]:
        """A prompt per chain and the parent that it shows; each is described once."""
        base = self.hooks.describe(None)
        known: dict[str, str | None] = {}
        prompts, shown = [], []
        for parent in parents:
            text = None
            if parent is not None:
                if parent.run_id not in known:
                    known[parent.run_id] = self.hooks.describe(self._previous(parent))
                text = known[parent.run_id]
            prompts.append(base if text is None else text)
            shown.append(None if text is None else parent)
        return prompts, shown

    def _previous(self, parent: Entry) -> Attempt:
        record = read_at(self._ledger.path, parent.offset)
        texts = (record.get("stdout"), record.get("stderr"))
        return Attempt(
            script=self._texts.load(record["script_sha256"]),
            seconds=record["execution_s"],
            score=record["score"],
            output="\n".join(text for text in texts if text),
        )

    def _generations(
        self, step: int, prompts: Sequence[str], phases: Phases
    ) -> Iterator[Generation]:
        """Answers for every chain: those kept from before a stop, then new ones."""
        missing = dict.fromkeys(range(len(prompts)))
        for generation in self.drafts.load(step):
            if all(row in missing for row in generation.rows):
                for row in generation.rows:
                    del missing[row]
                yield generation
        if not missing:
            return
        rows = list(missing)
        groups = self.hooks.policy.sample(step, rows, [prompts[row] for row in rows])
        while True:
            with phases("sample"):
                generation = next(groups, None)
                if generation is not None:
                    self.drafts.save(step, generation)
                    phases.mark()
            if generation is None:
                break
            for row in generation.rows:
                if row not in missing:
                    raise LoopError(f"the policy answered chain {row} unasked")
                del missing[row]
            yield generation
        if missing:
            raise LoopError(f"the policy left chains {list(missing)} without an answer")

    def _known(
        self, step: int, row: int, text: str, on_record: dict[int, Located]
    ) -> Located:
        if row not in on_record:
            raise ReplayError(f"step {step}, chain {row} is not in the ledger replayed")
        offset, record = on_record[row]
        check_script(record, attempt.digest(text))
        if self._recording.replay:
            self._save_texts(text)
            offset = self._ledger.append(record)
        return offset, record

    def _save_texts(self, text: str) -> tuple[str, str | None, bytes | str]:
        """Digests of answer and script, and the script (or why there is none)."""
        script, reason = attempt.read_answer(text)
        answer = self._texts.save(text, ".txt")
        if script is None:
            return answer, None, reason or "no script"
        return answer, self._texts.save(script), attempt.encoded(script)

    def _identity(
        self, step: int, row: int, text: str, parent: Entry | None, prompt: str
    ) -> tuple[dict[str, Any], bytes | str]:
        answer, sha, script = self._save_texts(text)
        tries = self._recording.tries(step, row)
        again = f"-t{tries}" if tries else ""
        return {
            "run_id": f"{self.cell.name}-{step:05d}-{row:03d}{again}",
            "task": self.cell.scoring.task.short,
            "arm": self.cell.arm.name,
            "seed": self.cell.seed,
            "step": step,
            "chain": row,
            "parent": parent and parent.run_id,
            "prompt_id": attempt.digest(prompt)[:16],
            "answer_sha256": answer,
            "script_sha256": sha,
            "script_file": sha and f"scripts/{sha}.py",
            "started_at": time.time(),
        }, script

    def _execute(self, run_id: str, script: bytes) -> "Future[RunRecord]":
        try:
            return self.hooks.execute(run_id, script)
        except Exception as error:  # a pool that is gone: the attempt is not at fault
            broken: Future[RunRecord] = Future()
            broken.set_exception(error)
            return broken

    def _collect(
        self, waiting: dict[Future, _Waiting], done: dict[int, Located]
    ) -> None:
        """Grade and record the runs that are over."""
        for future in [f for f in waiting if f.done()]:
            started = waiting.pop(future)
            begin = self._clock()
            try:
                fields, score = attempt.outcome(future.result(), self.hooks.grade)
            except Exception as error:
                reason = f"sandbox: {type(error).__name__}: {error}"
                fields, score = attempt.infrastructure(reason), None
            grading_s = self._clock() - begin
            done[started.identity["chain"]] = self._record(
                started, fields, score, grading_s
            )

    def _wait(
        self,
        waiting: dict[Future, _Waiting],
        done: dict[int, Located],
        phases: Phases,
    ) -> None:
        while waiting:
            with phases("execute"):
                over, _ = wait(
                    waiting,
                    timeout=self.cell.patience_s,
                    return_when=FIRST_COMPLETED,
                )
            if over:
                with phases("grade"):
                    self._collect(waiting, done)
                continue
            reason = f"sandbox: no script finished for {self.cell.patience_s:g} s"
            for future, started in waiting.items():
                future.cancel()
                fields = attempt.infrastructure(reason)
                done[started.identity["chain"]] = self._record(
                    started, fields, None, 0.0
                )
            return

    def _record(
        self,
        started: _Waiting,
        fields: dict[str, Any],
        score: float | None,
        grading_s: float,
    ) -> Located:
        record = attempt.finish(
            started.identity,
            fields,
            score,
            scoring=self.cell.scoring,
            generation_s=started.generation_s,
            grading_s=grading_s,
            best=self._best,
        )
        offset = self._ledger.append(record)
        self._phases.mark()
        return offset, record
