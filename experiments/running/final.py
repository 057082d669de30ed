"""The private test: the best scripts run once more, on the competition's test rows.

Nothing of it goes back into the run. A score that the machinery lost is reported as
such and tried again by the next ``--resume``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.config.errors import Stopped
from experiments.loop import grade
from experiments.records.final import FINAL, Record, final_records
from experiments.records.ledger import Ledger
from experiments.records.recorded import ATTEMPTS, INFRASTRUCTURE, by_step
from experiments.records.texts import Texts, encoded
from rpg_tasks.prepare import TaskData
from rpg_tasks.registry import Task
from rpg_tasks.scores import oriented
from sandbox_exec.limits import Limits
from sandbox_exec.protocol import RunRecord, ScriptJob, ScriptPool

if TYPE_CHECKING:  # scikit-learn is slow to import
    from rpg_tasks.grading import Grader


def best_attempts(folder: Path, task: Task, *, steps: int, mode: str) -> list[Record]:
    """The attempts to score, the best of the run first.

    Args:
        folder: of the run.
        task: gives the orientation.
        steps: number of committed steps; later attempts do not count.
        mode: ``best`` (by validation score, the earliest on ties), ``chains`` (the
            same for each chain) or ``none``.
    """
    best: dict[int, Record] = {}
    if mode == "none" or not (folder / ATTEMPTS).exists():
        return []
    for step, located in by_step(folder / ATTEMPTS):
        if step >= steps:
            break
        for _, record in located:
            if not record["valid"]:
                continue
            known = best.get(record["chain"])
            if known is None or oriented(task, record["score"]) > oriented(
                task, known["score"]
            ):
                best[record["chain"]] = record
    ranked = sorted(
        best.values(),
        key=lambda r: (-oriented(task, r["score"]), r["step"], r["chain"]),
    )
    return ranked if mode == "chains" else ranked[:1]


class FinalScoring:
    """Scores runs of one task on its private test.

    Args:
        data: the task's.
        grader: of the test answers.
        limits: of one script, as in the run.
        pool: runs scripts.
        mode: see ``best_attempts``.
        patience_s: when no script has finished for this long, what still runs counts
            as lost; None allows four times the limit and two minutes.
    """

    def __init__(
        self,
        data: TaskData,
        grader: Grader,
        limits: Limits,
        pool: ScriptPool,
        mode: str,
        patience_s: float | None = None,
    ):
        self._data, self._grader, self._limits = data, grader, limits
        self._pool, self._mode = pool, mode
        self._patience_s = patience_s or 4 * limits.wall_s + 120.0

    def score(
        self,
        runs: Sequence[tuple[Path, int]],
        on_record: Callable[[Path, Record], None] | None = None,
    ) -> int:
        """Score what is not scored yet and append to each run's ``final.jsonl``.

        Args:
            runs: folder and number of committed steps of each run.
            on_record: called with each new record.

        Returns:
            How many the machinery lost.

        Raises:
            LoopError: a record cannot be written, or a script is gone.
            Stopped: Ctrl-C; what had finished is written.
        """
        ledgers: dict[Path, Ledger] = {}
        waiting: dict[Future[RunRecord], tuple[Path, Record]] = {}
        lost = 0
        try:
            for folder, steps in runs:
                for identity, script in self._open(folder, steps):
                    if folder not in ledgers:
                        ledgers[folder] = Ledger(folder / FINAL)
                    job = ScriptJob(
                        script=script,
                        inputs=self._data.test_public,
                        task_id=self._data.task.short,
                        limits=self._limits,
                        run_id=f"{folder.name}-{identity['run_id']}",
                    )
                    waiting[self._submit(job)] = (folder, identity)
            while waiting:
                over, _ = wait(waiting, self._patience_s, FIRST_COMPLETED)
                for future in over or list(waiting):
                    folder, identity = waiting.pop(future)
                    record = identity | self._outcome(future)
                    ledgers[folder].append(record)
                    lost += record["status"] == INFRASTRUCTURE
                    if on_record is not None:
                        on_record(folder, record)
        except KeyboardInterrupt:
            raise Stopped(
                "stopped while the private test was scored; --resume goes on"
            ) from None
        finally:
            for ledger in ledgers.values():
                ledger.close()
        return lost

    def _open(self, folder: Path, steps: int) -> list[tuple[Record, bytes]]:
        """What is left to score of a run: identity and script."""
        done: set[str] = set()
        tries: dict[str, int] = {}
        for record in final_records(folder):
            of = record["of"]
            tries[of] = tries.get(of, 0) + 1
            if record["status"] != INFRASTRUCTURE:
                done.add(of)
        texts = Texts(folder / "scripts")
        found = []
        chosen = best_attempts(folder, self._data.task, steps=steps, mode=self._mode)
        for rank, record in enumerate(chosen):
            of = record["run_id"]
            if of in done:
                continue
            again = f"-t{tries[of]}" if of in tries else ""
            identity = {
                "run_id": f"{of}-final{again}",
                "of": of,
                **{k: record[k] for k in ("task", "arm", "seed", "step", "chain")},
                **{k: record[k] for k in ("script_sha256", "script_file")},
                "best": rank == 0,
                "validation_score": record["score"],
                "validation_execution_s": record["execution_s"],
            }
            script = texts.load(record["script_sha256"])
            found.append((identity, encoded(script)))
        return found

    def _submit(self, job: ScriptJob) -> Future[RunRecord]:
        try:
            return self._pool.submit(job)
        except Exception as error:  # a pool that is gone
            broken: Future[RunRecord] = Future()
            broken.set_exception(error)
            return broken

    def _outcome(self, future: Future[RunRecord]) -> Record:
        try:
            if not future.done():
                future.cancel()
                raise TimeoutError(f"no script finished for {self._patience_s:g} s")
            fields, score = grade.outcome(
                future.result(),
                lambda run: self._grader.grade_bytes(run.submission_bytes or b""),
            )
        except Exception as error:
            reason = f"sandbox: {type(error).__name__}: {error}"
            fields, score = grade.infrastructure(reason), None
        return {
            "reason": None,
            "medal": None,
            "above_median": None,
            **fields,
            "valid": fields["status"] == "valid",
            "score": score,
        }
