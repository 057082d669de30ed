"""LocalPool: one script per slot at a time, one long-lived thread per slot."""

import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field, replace
from types import TracebackType

from .calibrate import calibration_ratio
from .household import HOUSEHOLD
from .limits import Level
from .prepare import prepare_engine
from .protocol import RunRecord, ScriptJob, Slot
from .runner import Engine
from .slots import gpu_memory_used_mb, make_slots

_GPU_SLACK_MB = 64


@dataclass(eq=False)
class _Task:
    job: ScriptJob
    future: "Future[RunRecord]"
    queued_at: float = field(default_factory=time.monotonic)
    cancel_r: int = -1
    cancel_w: int = -1
    cancelled: bool = False


class LocalPool:
    """Runs scripts on this machine's slots; the queue is outside every delta.

    Use it as a context manager: leaving it normally waits for what was submitted,
    leaving it by an exception (Ctrl-C) stops everything.

    Args:
        slots: number of slots, or the slots themselves.
        require: least isolation level accepted; the best available one is used.
        level: exactly this level instead.
        python: interpreter for the scripts; the running one by default.
        cores: cores to share out among the slots.
        gpus: GPUs, one per slot.
        rerun_contended: run a script once more when its slot was disturbed.
        infra_retries: further attempts after a ``sandbox_error``.
        calibrate: measure the speed of this machine's cores once per process.
        oversubscribe: allow more slots than cores.
        engine: a prepared engine instead of `require`, `level` and `python`; one that
            is calibrated is not calibrated again.

    Raises:
        IsolationError: the machine cannot give the level that is asked for.
        ValueError: more slots than cores.
    """

    def __init__(
        self,
        slots: int | Sequence[Slot] = 1,
        *,
        require: Level | str = Level.NAMESPACES,
        level: Level | str | None = None,
        python: str | os.PathLike[str] | None = None,
        cores: tuple[int, ...] | None = None,
        gpus: tuple[int, ...] = (),
        rerun_contended: bool = True,
        infra_retries: int = 1,
        calibrate: bool = True,
        oversubscribe: bool = False,
        engine: Engine | None = None,
    ) -> None:
        if isinstance(slots, int):
            slots = make_slots(
                slots, cores=cores, gpus=gpus, oversubscribe=oversubscribe
            )
        self.slots = tuple(slots)
        if not self.slots:
            raise ValueError("a pool needs at least one slot")
        self._engine = engine or prepare_engine(require, level=level, python=python)
        self._rerun_contended = rerun_contended
        self._infra_retries = infra_retries
        # Re-entrant: cancelling a future runs its callbacks, which take the lock too.
        self._lock = threading.RLock()
        self._tasks: dict[str, _Task] = {}
        self._closed = False
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        HOUSEHOLD.acquire()
        try:
            if calibrate and self._engine.calibration_ratio is None:
                ratio = calibration_ratio(self._engine, self.slots[0])
                self._engine = replace(self._engine, calibration_ratio=ratio)
            self._gpu_baseline = {
                slot.index: gpu_memory_used_mb(slot.gpu_ids) for slot in self.slots
            }
            # Daemon threads: an interpreter that ends without close() must not hang,
            # and bubblewrap dies with the thread that started it.
            self._threads = [
                threading.Thread(
                    target=self._serve, args=(slot,), name=f"slot-{slot.index}"
                )
                for slot in self.slots
            ]
            for thread in self._threads:
                thread.daemon = True
                thread.start()
        except BaseException:
            HOUSEHOLD.release()
            raise

    @property
    def capacity(self) -> int:
        """Scripts that run at one time."""
        return len(self.slots)

    @property
    def isolation(self) -> Level:
        """The level that every script of this pool gets."""
        return self._engine.level

    @property
    def engine(self) -> Engine:
        """What was found out about this machine, for another pool on it."""
        return self._engine

    @property
    def calibration_ratio(self) -> float | None:
        """Speed of this machine's cores, as in every record."""
        return self._engine.calibration_ratio

    def submit(self, job: ScriptJob) -> "Future[RunRecord]":
        """Queue a job; the future's result is its record (of the accepted attempt).

        Raises:
            RuntimeError: the pool is closed.
            ValueError: a job with the same run_id is still queued or running.
        """
        task = _Task(job, Future())
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if job.run_id in self._tasks:
                raise ValueError(
                    f"run_id {job.run_id} is still in the pool; for one more run of "
                    "the same script use dataclasses.replace(job, run_id='')"
                )
            self._tasks[job.run_id] = task
            task.future.add_done_callback(lambda _: self._forget(task))
            # Under the lock: behind the end marks of a close nobody would take it.
            self._queue.put(task)
        return task.future

    def as_completed(
        self, futures: Iterable["Future[RunRecord]"], timeout: float | None = None
    ) -> "Iterator[Future[RunRecord]]":
        """Yield futures as they finish (TimeoutError after `timeout` seconds)."""
        return as_completed(futures, timeout)

    def cancel(self, run_id: str) -> bool:
        """Drop a queued job (its future is cancelled) or stop a running one.

        A running script is killed; its record has status ``sandbox_error`` and
        ``killed_by="cancel"``. Returns False when the job is already over or unknown.
        """
        with self._lock:
            task = self._tasks.get(run_id)
            if task is None:
                return False
            task.cancelled = True
            if task.future.cancel():
                return True
            if task.cancel_w >= 0:
                os.write(task.cancel_w, b"x")
            return not task.future.done()

    def close(self, *, wait: bool = False) -> None:
        """Release everything; with `wait` after the queued jobs, else at once."""
        with self._lock:
            first, self._closed = not self._closed, True
            if first:
                for _ in self._threads:
                    self._queue.put(None)
        if not wait:
            for run_id in list(self._tasks):
                self.cancel(run_id)
        try:
            for thread in self._threads:
                thread.join()
        except BaseException:  # Ctrl-C while waiting: stop what runs, then go on
            for run_id in list(self._tasks):
                self.cancel(run_id)
            for thread in self._threads:
                thread.join(15)
            raise
        finally:
            if first:
                HOUSEHOLD.release()

    def __enter__(self) -> "LocalPool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(wait=kind is None)

    def _forget(self, task: _Task) -> None:
        with self._lock:
            if self._tasks.get(task.job.run_id) is task:
                del self._tasks[task.job.run_id]

    def _serve(self, slot: Slot) -> None:
        while True:
            task = self._queue.get()
            if task is None:
                return
            if not task.future.set_running_or_notify_cancel():
                continue
            try:
                record = self._attempts(task, slot)
            except BaseException as error:
                task.future.set_exception(error)
            else:
                task.future.set_result(record)
            # Nothing of a finished task may linger until the next one comes.
            del task

    def _attempts(self, task: _Task, slot: Slot) -> RunRecord:
        """Run, and run again where that is the machine's fault."""
        queue_s = time.monotonic() - task.queued_at
        with self._lock:
            task.cancel_r, task.cancel_w = os.pipe()
            if task.cancelled:
                os.write(task.cancel_w, b"x")
        try:
            past: list[RunRecord] = []
            failures, rerun = 0, False
            while True:
                record = self._engine.run(
                    task.job,
                    slot,
                    attempt=len(past) + 1,
                    queue_s=queue_s,
                    cancel_fd=task.cancel_r,
                )
                record = self._settle_gpu(record, slot)
                past.append(record)
                if task.cancelled:
                    break
                if record.status == "sandbox_error":
                    failures += 1
                    if failures > self._infra_retries:
                        break
                    time.sleep(0.1 * failures)
                elif record.slot.contended and self._rerun_contended and not rerun:
                    rerun = True
                else:
                    break
            return _accept(past)
        finally:
            with self._lock:
                os.close(task.cancel_r)
                os.close(task.cancel_w)
                task.cancel_r = task.cancel_w = -1

    def _settle_gpu(
        self, record: RunRecord, slot: Slot, patience_s: float = 60.0
    ) -> RunRecord:
        """A slot is free again when the memory of its GPU is back at its baseline."""
        baseline = self._gpu_baseline.get(slot.index)
        if not baseline:
            return record
        deadline = time.monotonic() + patience_s
        while True:
            used = gpu_memory_used_mb(slot.gpu_ids)
            high = [g for g in baseline if used.get(g, 0) > baseline[g] + _GPU_SLACK_MB]
            if not high:
                return record
            if time.monotonic() > deadline:
                return replace(
                    record,
                    status="sandbox_error",
                    error=f"memory of GPU {high} is not back at its baseline",
                )
            time.sleep(0.2)


def _accept(past: list[RunRecord]) -> RunRecord:
    """Choose the attempt that counts; the others go along in `earlier`.

    The last real attempt, unless an earlier one was disturbed less.
    """
    real = [record for record in past if record.status != "sandbox_error"]
    if not real:
        chosen = past[-1]
    else:
        calm = [record for record in real if not record.slot.contended]
        chosen = calm[-1] if calm else min(real, key=_disturbance)
    others = tuple(record for record in past if record is not chosen)
    return replace(chosen, earlier=others)


def _disturbance(record: RunRecord) -> float:
    used = record.slot
    return (used.foreign_cpu_s + used.steal_s) / max(record.delta_s, 1e-3)
