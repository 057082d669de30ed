"""One step's attempts: those on record are taken from there, the others are run."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.config.errors import ReplayError, Stopped
from experiments.loop.execute import Execution, Started
from experiments.loop.hooks import Hooks
from experiments.loop.repeats import Firsts, leaders_of, program_digest
from experiments.loop.sample import Asked, Sampler
from experiments.loop.select import Entry
from experiments.records.drafts import Drafts, Generation
from experiments.records.ledger import Ledger, read_at
from experiments.records.phases import Phases
from experiments.records.recorded import Located, Recording, check_script
from experiments.records.spec import RunSpec
from experiments.records.texts import Texts, digest, encoded
from rpg_tasks.prompts import NoScript


class Gatherer:
    """Turns parents into records of attempts.

    Args:
        folder: of the run.
        spec: what is run.
        hooks: policy, sandbox, grader and prompts.
        ledger: where records go.
        recording: attempts that are on record already.
        clock: seconds.
    """

    def __init__(
        self,
        folder: Path,
        spec: RunSpec,
        hooks: Hooks,
        ledger: Ledger,
        recording: Recording,
        clock: Callable[[], float],
    ):
        self._spec, self._hooks = spec, hooks
        self._ledger, self._recording, self._clock = ledger, recording, clock
        self.drafts = Drafts(folder / "drafts")
        self._texts = Texts(folder / "scripts")
        declared = None
        if spec.virtual is not None:
            declared = spec.virtual.sampling_s / spec.protocol.chains
        self._sampler = Sampler(hooks, ledger.path, self._texts, self.drafts, declared)

    def attempts(
        self,
        step: int,
        parents: Sequence[Entry | None],
        errors: Sequence[str | None],
        best: float | None,
        firsts: Firsts | None,
        phases: Phases,
    ) -> tuple[list[Generation], list[Located]]:
        """Have every chain's answer run and graded; records in the chains' order.

        Args:
            step: number of the step.
            parents: per chain, None for the base prompt.
            errors: per chain, why its last answer gave no script.
            best: best value of earlier steps.
            firsts: first runs of earlier steps; None: scripts are run again.
            phases: takes the times.

        Raises:
            Stopped: Ctrl-C; what had finished is in the ledger.
        """
        asked = self._sampler.ask(parents, errors)
        on_record = self._recording.attempts(step)
        execution = Execution(
            self._spec, self._hooks, self._ledger, phases, self._clock, best
        )
        seen = _Seen(self._ledger.path, firsts, on_record)
        generations: list[Generation] = []
        try:
            for generation in self._sampler.answers(step, asked, phases):
                generations.append(generation)
                texts = zip(generation.rows, generation.texts, strict=True)
                for at, (row, text) in enumerate(texts):
                    if row in on_record or self._recording.replay:
                        execution.done[row] = self._known(
                            step, row, text, asked[row], on_record
                        )
                        continue
                    identity, script = self._identity(step, row, text, asked[row])
                    started = Started(identity, float(generation.seconds[at]))
                    if not isinstance(script, bytes):
                        execution.without_script(started, script)
                    elif (first := seen.first(identity)) is None:
                        execution.start(started, script)
                    elif isinstance(first, int):
                        execution.follow(started, first)
                    else:
                        execution.repeat(started, first)
                execution.collect()
            execution.finish()
        except KeyboardInterrupt:
            execution.collect()
            raise Stopped(
                f"stopped in step {step}: {len(execution.done)} of {len(asked)} of its "
                f"attempts and all steps before it are in {self._ledger.path}; go on "
                "with --resume"
            ) from None
        generations.sort(key=lambda group: group.rows[0])
        return generations, [execution.done[row] for row in range(len(asked))]

    def _known(
        self,
        step: int,
        row: int,
        text: str,
        asked: Asked,
        on_record: dict[int, Located],
    ) -> Located:
        if row not in on_record:
            raise ReplayError(f"step {step}, chain {row} is not in the ledger replayed")
        offset, record = on_record[row]
        check_script(record, digest(text))
        if self._recording.replay:
            self._save_texts(text, asked)
            offset = self._ledger.append(record)
        return offset, record

    def _save_texts(
        self, text: str, asked: Asked
    ) -> tuple[str, str | None, bytes | str]:
        """Digests of answer and script, and the script (or why there is none)."""
        answer = self._texts.save(text, ".txt")
        try:
            script = self._hooks.form.read(text, asked.script)
        except NoScript as error:
            return answer, None, str(error) or "no script"
        return answer, self._texts.save(script), encoded(script)

    def _identity(
        self, step: int, row: int, text: str, asked: Asked
    ) -> tuple[dict[str, Any], bytes | str]:
        answer, sha, script = self._save_texts(text, asked)
        tries = self._recording.tries(step, row)
        again = f"-t{tries}" if tries else ""
        spec = self._spec
        return {
            "run_id": f"{spec.name}-{step:05d}-{row:03d}{again}",
            "task": spec.scoring.task.short,
            "arm": spec.arm.name,
            "seed": spec.seed,
            "step": step,
            "chain": row,
            "parent": asked.parent and asked.parent.run_id,
            "prompt_id": digest(asked.prompt)[:16],
            "answer_sha256": answer,
            "script_sha256": sha,
            "script_file": sha and f"scripts/{sha}.py",
            "program_sha256": (
                program_digest(script) if isinstance(script, bytes) else None
            ),
            "started_at": time.time(),
        }, script


class _Seen:
    """Programs of the run so far.

    Args:
        ledger: file of the attempts.
        firsts: first runs of earlier steps; None: nothing is known again.
        on_record: attempts of this step that are on record already.
    """

    def __init__(
        self, ledger: Path, firsts: Firsts | None, on_record: dict[int, Located]
    ):
        self._ledger, self._firsts, self._on_record = ledger, firsts, on_record
        self._leaders = leaders_of(on_record)

    def first(self, identity: dict[str, Any]) -> dict[str, Any] | int | None:
        """What an attempt repeats: a record, or a chain of this step; None: nothing."""
        if self._firsts is None:
            return None
        chain, program = identity["chain"], identity["program_sha256"]
        known = self._firsts.find(program)
        if known is not None:
            return read_at(self._ledger, known)
        leader = self._leaders.setdefault(program, chain)
        if leader == chain:
            return None
        if leader in self._on_record:
            return self._on_record[leader][1]
        return leader
