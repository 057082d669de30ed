"""LocalPool: slots, queue, reruns, cancellation, and nothing left behind."""

import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_help import (
    best,
    cgroups,
    children,
    job,
    open_fds,
    resident_kb,
)

from sandbox_exec import Level, LocalPool, RunRecord, ScriptPool, Slot
from sandbox_exec.pool import _accept
from sandbox_exec.protocol import SlotUse
from sandbox_exec.slots import (
    CoreClock,
    available_cores,
    gpu_memory_used_mb,
    make_slots,
    slot_use,
)

STATUSES = ["ok", "nonzero_exit", "timeout", "oom", "output_limit", "ok"]
MIXED = [
    ("print('fine'); open('submission.csv', 'w').write('1')", {}),
    ("raise SystemExit(3)", {}),
    ("while True: pass", {"wall_s": 0.15}),
    ("x = b'm' * (1 << 30)", {"memory_mb": 48}),
    ("import os\nwhile True: os.write(1, bytes(1 << 16))", {"output_total_mb": 4}),
    (
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(60)",
        {},
    ),
]


def _pool(slots=1, **options) -> LocalPool:
    options = {"calibrate": False, "rerun_contended": False, "level": best()} | options
    return LocalPool(slots, **options)


def _mixed(count: int) -> None:
    """Run the six kinds in turn; nothing may grow and every record is complete."""
    with _pool() as pool:

        def round_trip(number: int) -> None:
            text, limits = MIXED[number % len(MIXED)]
            record = pool.submit(job(text, **limits)).result(timeout=120)
            if best() is Level.FULL:
                assert record.status == STATUSES[number % len(MIXED)], record
            assert record.error == ""
            assert record.node
            assert record.cpu_source
            assert record.delta_s > 0
            assert record.isolation.level == pool.isolation.name
            assert RunRecord.from_json(record.to_json()) == record

        for number in range(len(MIXED)):
            round_trip(number)
        gc.collect()
        fds, kids, memory = open_fds(), len(children()), resident_kb()
        threads = threading.active_count()
        mounts = Path("/proc/self/mountinfo").read_text()
        for number in range(count):
            round_trip(number)
        gc.collect()
        assert open_fds() == fds
        assert len(children()) == kids
        assert threading.active_count() == threads
        assert Path("/proc/self/mountinfo").read_text() == mounts
        assert resident_kb() <= memory * 1.05 + 1024
        for group in cgroups():
            assert not [x for x in Path(group).iterdir() if x.is_dir()]
    assert cgroups() == []
    assert children() == []


def test_mixed_scripts_leave_nothing():
    _mixed(12)


@pytest.mark.slow
def test_five_hundred_mixed_scripts_leave_nothing():
    _mixed(500)


def test_queue_is_outside_delta_and_order_is_kept():
    with _pool() as pool:
        assert isinstance(pool, ScriptPool)
        assert (pool.capacity, pool.isolation) == (1, best())
        started = time.monotonic()
        futures = [pool.submit(job("import time; time.sleep(0.2)")) for _ in range(3)]
        records = [f.result(timeout=60) for f in pool.as_completed(futures, 60)]
        wall = time.monotonic() - started
    assert records[2].queue_s > records[1].queue_s > records[0].queue_s
    assert records[2].queue_s >= 0.4
    assert sum(r.delta_s for r in records) <= wall


def test_leaving_normally_waits_and_closing_stops():
    with _pool() as pool:
        future = pool.submit(job("print(2)"))
    assert future.result(timeout=0).stdout_head == "2\n"
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(job("1"))
    pool = _pool()
    futures = [pool.submit(job("import time; time.sleep(60)")) for _ in range(2)]
    time.sleep(0.3)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 10
    assert futures[0].result(timeout=0).killed_by == "cancel"
    assert futures[1].cancelled()


def test_cancel_queued_and_running():
    with _pool() as pool:
        jobs = [job("import time; time.sleep(60)") for _ in range(2)]
        running, queued = [pool.submit(x) for x in jobs]
        while not running.running():
            time.sleep(0.01)
        assert pool.cancel(jobs[1].run_id)
        assert pool.cancel(jobs[0].run_id)
        record = running.result(timeout=30)
        assert (record.status, record.killed_by) == ("sandbox_error", "cancel")
        assert record.attempt == 1
        with pytest.raises(CancelledError):
            queued.result(timeout=1)
        assert not pool.cancel(jobs[0].run_id)
        assert not pool.cancel("unknown")
        # The slot is free again.
        assert pool.submit(job("1")).result(timeout=30).status == "ok"


def test_one_record_per_run_id():
    with _pool() as pool:
        one = job("import time; time.sleep(0.1)")
        future = pool.submit(one)
        with pytest.raises(ValueError, match="still in the pool"):
            pool.submit(one)
        other = pool.submit(replace(one, run_id=""))
        assert future.result(60).run_id == one.run_id
        assert other.result(60).run_id != one.run_id
        assert pool.submit(one).result(60).run_id == one.run_id


def test_a_job_handed_in_while_the_pool_closes_ends(monkeypatch):
    pool, waiting = _pool(), threading.Event()
    real = pool._queue

    class Slow:
        get = real.get

        def put(self, task):
            if task is not None and not waiting.is_set():
                waiting.set()
                time.sleep(0.3)  # the other thread closes meanwhile
            real.put(task)

    monkeypatch.setattr(pool, "_queue", Slow())
    futures = []
    late = threading.Thread(target=lambda: futures.append(pool.submit(job("1"))))
    late.start()
    assert waiting.wait(10)
    pool.close(wait=True)
    late.join()
    assert futures[0].result(timeout=30).status == "ok"


def test_infrastructure_errors_are_tried_again(tmp_path):
    with _pool() as pool:
        lost = pool.submit(job("1", inputs=tmp_path / "none")).result(timeout=60)
    assert lost.status == "sandbox_error"
    assert lost.attempt == 2
    assert [r.attempt for r in lost.earlier] == [1]


def test_accepted_attempt_and_charge():
    def record(attempt, *, foreign=0.0, status="ok", delta=1.0):
        use = SlotUse(foreign_cpu_s=foreign, contended=foreign > 0.05)
        return RunRecord(
            run_id="r", attempt=attempt, status=status, delta_s=delta, slot=use
        )

    calm = _accept([record(1, foreign=0.5, delta=3.0), record(2)])
    assert (calm.attempt, calm.charged_s) == (2, 4.0)
    assert calm.earlier[0].slot.contended
    both = _accept([record(1, foreign=0.2), record(2, foreign=0.6)])
    assert both.attempt == 1
    after_error = _accept([record(1, status="sandbox_error", delta=0.0), record(2)])
    assert (after_error.status, after_error.attempt) == ("ok", 2)


def test_contended_slots_are_seen_and_run_once_more():
    core = available_cores()[-1]
    burn = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with _pool([Slot(0, (core,))], rerun_contended=True) as pool:
        rival = subprocess.Popen([sys.executable, "-c", burn])
        try:
            time.sleep(0.2)
            text = "import time\nwhile time.process_time() < 0.3: pass"
            record = pool.submit(job(text)).result(timeout=60)
        finally:
            rival.kill()
            rival.wait()
    assert record.slot.contended
    assert record.slot.foreign_cpu_s > 0.05 * record.delta_s
    assert len(record.earlier) == 1
    assert {record.attempt, record.earlier[0].attempt} == {1, 2}
    assert record.charged_s > record.delta_s


def test_contention_arithmetic():
    slot = Slot(0, (0, 1))

    def use(busy, steal=0.0, delta=10.0, cpu=5.0):
        after = CoreClock(100 + busy, 7 + steal)
        return slot_use(slot, CoreClock(100, 7), after, delta_s=delta, cpu_s=cpu)

    assert not use(5.4).contended
    assert use(5.6).contended
    assert use(5.6).foreign_cpu_s == pytest.approx(0.6)
    assert use(5.0, steal=0.6).contended
    assert use(22.0, cpu=21.5).contended
    assert not use(20.0, cpu=20.0).contended
    assert not slot_use(slot, None, None, delta_s=1, cpu_s=1).contended


def test_slots_share_cores_out():
    slots = make_slots(2, cores=(0, 1, 2, 3))
    assert [s.cores for s in slots] == [(0, 1), (2, 3)]
    assert [s.threads for s in slots] == [2, 2]
    with pytest.raises(ValueError, match="oversubscribe"):
        make_slots(3, cores=(0, 1))
    shared = make_slots(3, cores=(0, 1), oversubscribe=True)
    assert [s.cores for s in shared] == [(0,), (1,), (0,)]
    assert [s.gpu_ids for s in make_slots(2, cores=(0, 1), gpus=(4, 7))] == [(4,), (7,)]
    with pytest.raises(ValueError, match="at least one slot"):
        make_slots(0)


def test_scripts_stay_on_their_cores():
    core = available_cores()[-1]
    text = "import os\ntry: os.sched_setaffinity(0, range(os.cpu_count()))\n"
    text += "except OSError: pass\nprint(sorted(os.sched_getaffinity(0)))"
    for level in {best(), min(Level.NAMESPACES, best())}:
        with _pool([Slot(0, (core,))], level=level) as pool:
            record = pool.submit(job(text)).result(timeout=60)
        assert record.stdout_head == f"[{core}]\n", level


def test_gpu_slot_waits_for_its_memory(tmp_path, monkeypatch):
    tool, state = tmp_path / "nvidia-smi", tmp_path / "used"
    tool.write_text(f"#!/bin/sh\necho \"0, $(cat {state})\"\necho '1, 5'\n")
    tool.chmod(0o755)
    state.write_text("100")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_memory_used_mb((0,)) == {0: 100}
    assert gpu_memory_used_mb(()) == {}
    with _pool([Slot(0, (available_cores()[0],), (0,))]) as pool:
        state.write_text("9000")
        threading.Timer(0.3, state.write_text, ("101",)).start()
        started = time.monotonic()
        text = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
        record = pool.submit(job(text)).result(timeout=60)
        assert time.monotonic() - started > 0.25
        assert (record.status, record.stdout_head) == ("ok", "0\n")
        assert record.slot.gpu_ids == (0,)
        state.write_text("9000")
        stuck = pool._settle_gpu(record, pool.slots[0], patience_s=0.3)
        assert stuck.status == "sandbox_error"


def test_calibration_is_in_every_record():
    with _pool(calibrate=True) as pool:
        record = pool.submit(job("1")).result(timeout=60)
    assert 0.01 < record.calibration_ratio < 100
    assert record.calibration_ratio == pool.calibration_ratio
