"""One script from job to record: set up, time, kill, collect, classify."""

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from .box import Launched
from .cgroup import RunCgroup
from .collect import collect
from .environment import Environment
from .errors import SandboxError
from .household import HOUSEHOLD
from .inputs import check_inputs, readable_by_all
from .launch import launch
from .layers import layers_of, user_layer
from .limits import Level
from .procfs import sandbox_cpu_s
from .protocol import Isolation, RunRecord, ScriptJob, Slot, SlotUse
from .slots import CoreClock, cpu_model, slot_use
from .supervise import Outcome, Supervisor


@dataclass(frozen=True)
class Engine:
    """Everything about this machine that runs share.

    Attributes:
        level: how every script is contained.
        env: the interpreter.
        calibration_ratio: speed of this machine's cores, see `calibrate`.
        as_nobody: a harness that is root runs scripts under an unused id (set to False
            where that was tried and does not work).
    """

    level: Level
    env: Environment
    calibration_ratio: float | None = None
    as_nobody: bool = True

    def run(
        self,
        job: ScriptJob,
        slot: Slot,
        *,
        attempt: int = 1,
        queue_s: float = 0.0,
        cancel_fd: int = -1,
    ) -> RunRecord:
        """Run one script on one slot; never raises for what a script or machine does.

        Args:
            job: what to run. slot: where.
            attempt: number of this attempt at the run_id, from 1.
            queue_s: seconds the job has waited for its slot.
            cancel_fd: becomes readable when the run is to be cut short.
        """
        began = time.monotonic()
        record = self._blank(job, slot, attempt, queue_s)
        box: Launched | None = None
        group: RunCgroup | None = None
        HOUSEHOLD.acquire()
        try:
            if job.inputs is not None:
                check_inputs(job.inputs)
            layers = layers_of(self.level)
            pin = ""
            if slot.cores and hasattr(os, "sched_setaffinity"):
                pin = "affinity"
            if self.level is Level.FULL:
                tree = HOUSEHOLD.tree()
                group = tree.create(HOUSEHOLD.run_name(), job.limits, slot.cores)
                layers["cgroup"] = tree.description
                pin = "cpuset" if group.pinned else pin
            layers["pinning"] = pin or "none"
            nobody = self._as_nobody(job)
            layers.update(user_layer(self.level, nobody))
            record = replace(record, isolation=Isolation(self.level.name, layers))
            box = launch(job, slot, self.env, self.level, pin=pin, as_nobody=nobody)
            if group is not None:
                group.add([box.init_pid, box.child_pid])
            if pin == "affinity":
                os.sched_setaffinity(box.child_pid, slot.cores)
            _prefer_as_oom_victim(box.child_pid)
            record = self._timed(job, slot, record, box, group, cancel_fd, began)
        except (SandboxError, OSError) as error:
            record = replace(
                record,
                status="sandbox_error",
                error=f"{type(error).__name__}: {error}",
                setup_s=record.setup_s or time.monotonic() - began,
            )
        finally:
            record = _clean_up(record, box, group)
            HOUSEHOLD.release()
        return record

    def _blank(
        self, job: ScriptJob, slot: Slot, attempt: int, queue_s: float
    ) -> RunRecord:
        """The record of a run that has not begun."""
        return RunRecord(
            run_id=job.run_id,
            attempt=attempt,
            task_id=job.task_id,
            script_sha256=job.script_sha256,
            node=os.uname().nodename,
            cpu_model=cpu_model(),
            calibration_ratio=self.calibration_ratio,
            started_at=time.time(),
            queue_s=queue_s,
            slot=SlotUse(slot.index, slot.cores, slot.gpu_ids, slot.threads),
            isolation=Isolation(self.level.name, {}),
        )

    def _as_nobody(self, job: ScriptJob) -> bool:
        if not self.as_nobody or self.level < Level.NAMESPACES or os.geteuid() != 0:
            return False
        return job.inputs is None or readable_by_all(job.inputs)

    def _timed(
        self,
        job: ScriptJob,
        slot: Slot,
        record: RunRecord,
        box: Launched,
        group: RunCgroup | None,
        cancel_fd: int,
        began: float,
    ) -> RunRecord:
        watch = "sampled" in record.isolation.layers.get("pids", "")
        supervisor = Supervisor(
            box, job.limits, group=group, cancel_fd=cancel_fd, watch_forks=watch
        )
        if group is not None:
            group.start_clock()
        before = CoreClock.read(slot.cores)
        setup_s = time.monotonic() - began
        outcome = supervisor.run()
        reap_start = time.monotonic()
        after = CoreClock.read(slot.cores)
        cpu_at_exit = group.cpu_s() if group is not None else 0.0
        supervisor.finish()
        if group is None:
            cpu_at_exit = sandbox_cpu_s(box, outcome.report)
        cpu_at_exit = max(cpu_at_exit, outcome.cpu_s)
        failed_exec = _exec_failure(box)
        pids_peak = max(outcome.pids_peak, outcome.report.get("pids_peak", 0))
        if group is not None:
            pids_peak = group.pids_peak()
        box.kill()
        if group is not None:
            group.kill()
        supervisor.drain_rest()
        submission, data = collect(
            box.work_fd, job.submission_name, job.limits.submission_mb << 20
        )
        used = slot_use(slot, before, after, delta_s=outcome.delta_s, cpu_s=cpu_at_exit)
        counted = _counted(outcome, group, cpu_at_exit)
        record = replace(
            record,
            setup_s=setup_s,
            reap_s=time.monotonic() - reap_start,
            pids_peak=pids_peak,
            submission=submission,
            submission_bytes=data if submission.status == "ok" else None,
            slot=used,
        )
        if job.limits.cpu_s is not None:
            # Between two looks it may use more than its limit.
            counted["cpu_s"] = min(counted["cpu_s"], job.limits.cpu_s)
        record = replace(record, **counted)
        return _judged(_with_output(record, supervisor), outcome, group, failed_exec)


def _counted(outcome: Outcome, group: RunCgroup | None, cpu_s: float) -> dict[str, Any]:
    """CPU and memory fields of the record, by the best source there is."""
    peak = max(
        outcome.memory_peak,
        outcome.report.get("maxrss_kb", 0) << 10,
        outcome.report.get("memory_peak", 0),
    )
    values = {
        "delta_s": outcome.delta_s,
        "disk_bytes": outcome.disk_bytes,
        "cpu_s": cpu_s,
        "cpu_source": "proc",
        "peak_rss_bytes": peak,
        "rss_source": "sampled",
    }
    if group is not None:
        values |= {"cpu_s": group.cpu_s(), "cpu_source": "cgroup"}
        values["oom_kills"] = group.oom_kills()
        exact = group.memory_peak()
        if exact:
            values |= {"peak_rss_bytes": exact, "rss_source": "cgroup"}
    return values


def _with_output(record: RunRecord, supervisor: Supervisor) -> RunRecord:
    out, err = supervisor.stdout, supervisor.stderr
    return replace(
        record,
        stdout_head=out.head,
        stdout_tail=out.tail,
        stdout_bytes=out.total,
        stderr_head=err.head,
        stderr_tail=err.tail,
        stderr_bytes=err.total,
    )


def _judged(
    record: RunRecord, outcome: Outcome, group: RunCgroup | None, failed_exec: str
) -> RunRecord:
    """The record with how the run ended, and why."""
    refused = group.pids_refused() if group is not None else 0
    status, exit_code, term_signal = classify(
        outcome, oom_kills=record.oom_kills, pids_refused=refused
    )
    error = ""
    if failed_exec:
        status, error = "sandbox_error", f"the script did not start: {failed_exec}"
    elif outcome.killed_by == "cancel":
        error = "cancelled by the caller"
    elif status == "signal" and term_signal is None:
        error = "the supervisor inside the sandbox was killed"
    return replace(
        record,
        status=status,
        exit_code=exit_code,
        term_signal=term_signal,
        killed_by=outcome.killed_by,
        error=error,
    )


def _prefer_as_oom_victim(pid: int) -> None:
    """Should the machine run out of memory, the script goes before the harness."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/oom_score_adj", "w") as stream,
    ):
        stream.write("900")


def _exec_failure(box: Launched) -> str:
    try:
        text = box.go.recv(4096, 0x40 if sys.platform == "linux" else 0)
    except OSError:
        return ""
    return text[1:].decode("utf-8", "replace") if text[:1] == b"x" else ""


def _clean_up(
    record: RunRecord, box: Launched | None, group: RunCgroup | None
) -> RunRecord:
    problem = ""
    if box is not None:
        if box.process.poll() is None:
            try:
                box.kill()
            except (SandboxError, OSError) as error:
                problem = str(error)
        box.close()
    if group is not None:
        try:
            group.remove()
        except OSError as error:
            problem = problem or f"control group not removed: {error}"
    if problem and record.status != "sandbox_error":
        record = replace(record, status="sandbox_error", error=problem)
    return record


def classify(
    outcome: Outcome, *, oom_kills: int = 0, pids_refused: int = 0
) -> tuple[str, int | None, int | None]:
    """Return (status, exit code, terminating signal) of a finished run.

    Our own reasons to kill come first, then the kernel's counters; an exit code by
    itself (137, 124) proves nothing. A run in which the kernel killed any process for
    memory is 'oom' even if the main process then ended with 0.
    """
    exit_code = term_signal = None
    if outcome.wait_status is not None:
        code = os.waitstatus_to_exitcode(outcome.wait_status)
        exit_code, term_signal = (code, None) if code >= 0 else (None, -code)
    if outcome.killed_by == "cancel":
        return "sandbox_error", exit_code, term_signal
    if outcome.killed_by:
        return outcome.killed_by, exit_code, term_signal
    if oom_kills:
        return "oom", exit_code, term_signal
    if exit_code == 0:
        return "ok", 0, None
    if outcome.disk_full or term_signal == getattr(signal, "SIGXFSZ", -1):
        return "disk_limit", exit_code, term_signal
    if pids_refused:
        return "pids_limit", exit_code, term_signal
    if exit_code is not None:
        return "nonzero_exit", exit_code, None
    return "signal", None, term_signal
