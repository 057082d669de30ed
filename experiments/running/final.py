"""The private test: the best scripts run once more, on the competition's test rows.

Nothing of it goes back into the run. A score that the machinery lost is reported as
such and tried again by the next ``--resume``. Where the best script fails its test
(time-out, crash, invalid) the next best by validation is tried, up to ``TRIED`` of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.config.errors import Stopped
from experiments.loop import grade
from experiments.records.final import FINAL, Record, failed, final_records
from experiments.records.ledger import Ledger
from experiments.records.recorded import ATTEMPTS, INFRASTRUCTURE, by_step
from experiments.records.texts import Texts, encoded
from rpg_tasks.goal import Goal
from rpg_tasks.prepare import TaskData
from rpg_tasks.registry import Task
from rpg_tasks.scores import oriented
from sandbox_exec.limits import Limits
from sandbox_exec.protocol import RunRecord, ScriptJob, ScriptPool

if TYPE_CHECKING:  # scikit-learn is slow to import
    from rpg_tasks.grading import Grader


#: Scripts of a run whose test is tried until one has a score.
TRIED = 3


def ranked_attempts(folder: Path, task: Goal, *, steps: int) -> list[Record]:
    """The best valid attempts of a run, one a program, at most ``TRIED``.

    Args:
        folder: of the run.
        task: gives the orientation.
        steps: number of committed steps; later attempts do not count.
    """
    best: list[Record] = []
    if not (folder / ATTEMPTS).exists():
        return best
    for step, located in by_step(folder / ATTEMPTS):
        if step >= steps:
            break
        best += [record for _, record in located if record["valid"]]
        best.sort(
            key=lambda r: (-oriented(task, r["score"]), r["step"], r["chain"]),
        )
        # One a program: the same script would fail again.
        programs: dict[str, Record] = {}
        for record in best:
            programs.setdefault(_program(record), record)
        best = list(programs.values())[:TRIED]
    return best


def _program(record: Record) -> str:
    return str(record.get("program_sha256") or record["script_sha256"])


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


#: Stands for a test that is not on record.
_OPEN: Record = {"status": INFRASTRUCTURE}


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
        steps_of = dict(runs)
        tried: dict[Path, set[str]] = {folder: set() for folder in steps_of}
        lost = 0
        try:
            for folder, steps in runs:
                for identity in self._open(folder, steps):
                    if folder not in ledgers:
                        ledgers[folder] = Ledger(folder / FINAL)
                    tried[folder].add(identity["of"])
                    waiting[self._start(folder, identity)] = (folder, identity)
            while waiting:
                over, _ = wait(waiting, self._patience_s, FIRST_COMPLETED)
                for future in over or list(waiting):
                    folder, identity = waiting.pop(future)
                    record = identity | self._outcome(future)
                    ledgers[folder].append(record)
                    lost += record["status"] == INFRASTRUCTURE
                    if on_record is not None:
                        on_record(folder, record)
                    # A lost one waits for the next --resume, a failed one does not.
                    for other in self._open(folder, steps_of[folder]):
                        if "instead_of" in other and other["of"] not in tried[folder]:
                            tried[folder].add(other["of"])
                            waiting[self._start(folder, other)] = (folder, other)
        except KeyboardInterrupt:
            raise Stopped(
                "stopped while the private test was scored; --resume goes on"
            ) from None
        finally:
            for ledger in ledgers.values():
                ledger.close()
        return lost

    def _open(self, folder: Path, steps: int) -> list[Record]:
        """What is left to score of a run: identities."""
        if self._mode == "none":
            return []
        last: dict[str, Record] = {}
        tries: dict[str, int] = {}
        for record in final_records(folder):
            of = record["of"]
            tries[of] = tries.get(of, 0) + 1
            last[of] = record
        task = self._data.task
        chosen = best_attempts(folder, task, steps=steps, mode=self._mode)
        ranked = ranked_attempts(folder, task, steps=steps)
        fallbacks = [record["run_id"] for record in ranked[1:]]
        for record in self._next(chosen, ranked, last):
            if all(record["run_id"] != one["run_id"] for one in chosen):
                chosen.append(record)
        found = []
        for rank, record in enumerate(chosen):
            of = record["run_id"]
            if of in last and last[of]["status"] != INFRASTRUCTURE:
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
            if rank == 0:
                identity["fallbacks"] = fallbacks
            elif of in fallbacks and failed(last.get(chosen[0]["run_id"], _OPEN)):
                identity["instead_of"] = chosen[0]["run_id"]
                identity["place"] = 2 + fallbacks.index(of)
            found.append(identity)
        return found

    def _next(
        self, chosen: list[Record], ranked: list[Record], last: dict[str, Record]
    ) -> list[Record]:
        """What stands in for the best script, as far as those before it failed."""
        best = last.get(chosen[0]["run_id"], _OPEN) if chosen else _OPEN
        # A test of an older form has no fallbacks and stays what it is.
        if not failed(best) or "fallbacks" not in best:
            return []
        found = []
        for record in ranked[1:]:
            found.append(record)
            if not failed(last.get(record["run_id"], _OPEN)):
                break
        return found

    def _start(self, folder: Path, identity: Record) -> Future[RunRecord]:
        script = Texts(folder / "scripts").load(identity["script_sha256"])
        job = ScriptJob(
            script=encoded(script),
            inputs=self._data.test_public,
            task_id=self._data.task.short,
            limits=self._limits,
            run_id=f"{folder.name}-{identity['run_id']}",
        )
        return self._submit(job)

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
