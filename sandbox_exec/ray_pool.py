"""RayPool: one actor per machine, each with a LocalPool; retries are ours alone.

Ray would run a crashed task again by itself (up to four times in all) and would do so
without the ledger knowing: here every Ray retry is off. A lost actor or machine gives
its runs back to this pool, which sends them out once more as the next attempt of the
same run_id; whatever arrives second for a run_id is dropped.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from .limits import Level
from .protocol import RunRecord, ScriptJob
from .ray_crew import Crew, Worker
from .slots import available_cores

#: Seconds between looks for missing pools; twice as long after each that failed.
_MEND_EVERY_S, _MEND_SELDOM_S = 10.0, 600.0


@dataclass(eq=False)
class _Task:
    job: ScriptJob
    future: "Future[RunRecord]"
    queued_at: float = field(default_factory=time.monotonic)
    lost: list[RunRecord] = field(default_factory=list)
    cancelled: bool = False


class RayPool:
    """Runs scripts on every machine of a Ray cluster.

    The inputs folder of a job must exist under the same path on every machine (a shared
    file system), and so must the interpreter.

    Args:
        slots_per_node: slots of each machine; by default one per core but one.
        require: least isolation level accepted on every machine.
        actors_per_node: pools on each machine; they share its cores out evenly.
        lost_retries: further attempts for a run whose machine was lost.
        start_timeout_s: seconds to wait for the machines' pools.
        **options: passed on to each LocalPool.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        SandboxError: no machine could start its pool.
    """

    def __init__(
        self,
        slots_per_node: int | None = None,
        *,
        require: Level | str = Level.NAMESPACES,
        actors_per_node: int = 1,
        lost_retries: int = 2,
        start_timeout_s: float = 300.0,
        **options: Any,
    ) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "RayPool needs Ray: pip install 'ray>=2.40' (the extra [ray])"
            ) from error
        self._ray = ray
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            ray.init(
                num_cpus=len(available_cores()),
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
        self._lost_retries = lost_retries
        self._crew = Crew(
            ray,
            slots=slots_per_node,
            actors_per_node=actors_per_node,
            start_timeout_s=start_timeout_s,
            options={"require": Level.parse(require), **options},
        )
        self._lock = threading.Condition()
        self._queue: deque[_Task] = deque()
        self._tasks: dict[str, _Task] = {}
        self._workers: list[Worker] = []
        self._closed = False
        self._stop = False
        try:
            self._workers = self._crew.start_all()
        except BaseException:
            self._shutdown()
            raise
        self._mending: threading.Thread | None = None
        self._mend_wait_s = _MEND_EVERY_S
        self._next_mend = time.monotonic() + _MEND_EVERY_S
        self._thread = threading.Thread(
            target=self._serve, name="ray-pool", daemon=True
        )
        self._thread.start()

    @property
    def capacity(self) -> int:
        """Scripts that run at one time on all machines."""
        with self._lock:
            return sum(worker.capacity for worker in self._workers)

    @property
    def isolation(self) -> Level:
        """The least level among the machines."""
        with self._lock:
            return min((w.level for w in self._workers), default=Level.POSIX)

    def submit(self, job: ScriptJob) -> "Future[RunRecord]":
        """Queue a job.

        Raises:
            RuntimeError: the pool is closed.
            ValueError: a job with the same run_id is still queued or running.
        """
        task = _Task(job, Future())
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if job.run_id in self._tasks:
                raise ValueError(f"run_id {job.run_id} is still in the pool")
            self._tasks[job.run_id] = task
            self._queue.append(task)
            self._lock.notify_all()
        return task.future

    def as_completed(
        self, futures: Iterable["Future[RunRecord]"], timeout: float | None = None
    ) -> "Iterator[Future[RunRecord]]":
        """Yield futures as they finish."""
        return as_completed(futures, timeout)

    def cancel(self, run_id: str) -> bool:
        """Drop a queued job or stop a running one."""
        with self._lock:
            task = self._tasks.get(run_id)
            if task is None:
                return False
            task.cancelled = True
            if task in self._queue:
                self._queue.remove(task)
                if task.lost:  # it has run: its future takes a record and nothing else
                    record = _lost(task, "cancelled by the caller", "cancel")
                    self._finish(task, record)
                    return True
                self._tasks.pop(run_id)
                return task.future.cancel()
            for worker in self._workers:
                if task in worker.running.values():
                    worker.actor.cancel.remote(run_id)
                    return True
        return False

    def close(self, *, wait: bool = False) -> None:
        """Release everything; with `wait` after the queued jobs, else at once."""
        with self._lock:
            self._closed = True
            pending = list(self._tasks.values())
        if wait:
            for task in pending:
                with contextlib.suppress(Exception):
                    task.future.result()
        self._shutdown()

    def _shutdown(self) -> None:
        with self._lock:
            if self._stop:
                return
            self._closed = self._stop = True
            self._lock.notify_all()
        if hasattr(self, "_thread"):
            self._thread.join()
        closing = [worker.actor.close.remote() for worker in self._workers]
        with contextlib.suppress(Exception):
            self._ray.wait(closing, num_returns=len(closing), timeout=15)
        for worker in self._workers:
            self._crew.dismiss(worker)
        for task in list(self._tasks.values()):
            if not task.future.done():
                self._finish(task, _lost(task, "the pool was closed", "cancel"))
        if self._owns_ray:
            self._ray.shutdown()

    def __enter__(self) -> "RayPool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(wait=kind is None)

    def _serve(self) -> None:
        """Hand out jobs, take records, notice losses."""
        while True:
            with self._lock:
                if self._stop:
                    return
                self._hand_out()
                pending = [ref for worker in self._workers for ref in worker.running]
                if not pending:
                    self._lock.wait(0.5)
            self._mend()
            if not pending:
                continue
            done, _ = self._ray.wait(pending, num_returns=1, timeout=0.05)
            for ref in done:
                self._take(ref)

    def _hand_out(self) -> None:
        for worker in sorted(self._workers, key=lambda w: len(w.running)):
            while self._queue and len(worker.running) < worker.capacity:
                task = self._queue.popleft()
                if not task.lost and not task.future.set_running_or_notify_cancel():
                    self._tasks.pop(task.job.run_id, None)
                    continue
                ref = worker.actor.run.remote(task.job)
                worker.running[ref] = task

    def _take(self, ref: Any) -> None:
        with self._lock:
            worker = next(w for w in self._workers if ref in w.running)
        try:
            record = self._ray.get(ref)
        except self._ray.exceptions.RayActorError as error:
            self._lose(worker, str(error).strip().splitlines()[0])
            return
        except Exception as error:
            # Raised inside the actor: the machinery failed, the machine is fine.
            task = worker.running.pop(ref)
            self._finish(task, _lost(task, f"{type(error).__name__}: {error}", ""))
            return
        task = worker.running.pop(ref)
        self._finish(task, record)

    def _lose(self, worker: Worker, why: str) -> None:
        """An actor or its machine is gone: its runs go back into the queue."""
        with self._lock:
            self._workers.remove(worker)
            tasks = list(worker.running.values())
            worker.running.clear()
            for task in tasks:
                record = _lost(task, f"lost with its machine: {why}", "")
                if task.cancelled or len(task.lost) >= self._lost_retries:
                    self._finish(task, record)
                else:
                    attempt = len(task.lost) + 1
                    task.lost.append(replace(record, attempt=attempt))
                    self._queue.appendleft(task)
            self._mend_wait_s, self._next_mend = _MEND_EVERY_S, 0.0

    def _mend(self) -> None:
        """Look for missing pools now and then, in a thread: the others are served."""
        if self._mending is not None and self._mending.is_alive():
            return
        if time.monotonic() >= self._next_mend:
            self._next_mend = time.monotonic() + self._mend_wait_s
            self._mending = threading.Thread(
                target=self._start_missing, name="ray-pool-mend", daemon=True
            )
            self._mending.start()

    def _start_missing(self) -> None:
        """Start pools where there should be one: lost, failed, or of a new machine."""
        failed = False
        with self._lock:
            have = {(w.node_id, w.serial) for w in self._workers}
        try:
            missing = [place for place in self._crew.places() if place not in have]
        except Exception:  # the cluster does not answer: another look, later
            missing, failed = [], True
        for place in missing:
            try:
                worker = self._crew.begin(*place)
                self._crew.wait(worker)
            except Exception:
                failed = True
                continue
            with self._lock:
                stopped = self._stop
                if not stopped:
                    self._workers.append(worker)
                    self._lock.notify_all()
            if stopped:
                self._crew.dismiss(worker)
        with self._lock:
            wait_s = min(2 * self._mend_wait_s, _MEND_SELDOM_S)
            self._mend_wait_s = wait_s if failed else _MEND_EVERY_S
            if self._next_mend:  # nothing was lost meanwhile
                self._next_mend = time.monotonic() + self._mend_wait_s

    def _finish(self, task: _Task, record: RunRecord) -> None:
        """Give a run its one record; a second one for the same run_id is dropped."""
        with self._lock:
            if self._tasks.pop(task.job.run_id, None) is not task:
                return
        attempt = record.attempt + len(task.lost)
        earlier = (*task.lost, *record.earlier)
        queue_s = record.queue_s
        if not record.error:
            spent = time.monotonic() - task.queued_at
            queue_s = max(queue_s, spent - record.delta_s - record.setup_s)
        done = replace(record, attempt=attempt, earlier=earlier, queue_s=queue_s)
        if not task.future.done():
            task.future.set_result(done)


def _lost(task: _Task, why: str, killed_by: str) -> RunRecord:
    # attempt: `_finish` adds the lost ones.
    return RunRecord(
        run_id=task.job.run_id,
        attempt=1,
        task_id=task.job.task_id,
        script_sha256=task.job.script_sha256,
        status="sandbox_error",
        killed_by=killed_by,
        error=why,
        started_at=time.time(),
    )
