"""RayPool on one machine: every run_id exactly once, even when an actor is killed."""

import os
import signal
import threading
import time
import warnings
from collections import deque
from concurrent.futures import Future

import pytest

from sandbox_exec import Level, Limits, RayPool, ScriptJob

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")

_LIMITS = Limits(wall_s=20, memory_mb=256)


@pytest.mark.slow
def test_fifty_scripts_with_one_actor_killed_half_way(monkeypatch):
    import ray

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pool = RayPool(
            1,
            actors_per_node=min(2, os.cpu_count()),
            require=Level.POSIX,
            calibrate=False,
            rerun_contended=False,
        )
    with pool:
        capacity = pool.capacity
        assert capacity >= 1
        jobs = [
            ScriptJob(
                script=b"import time; time.sleep(0.05); print(%d)" % i,
                task_id=str(i),
                limits=_LIMITS,
            )
            for i in range(50)
        ]
        futures = [pool.submit(job) for job in jobs]
        with pytest.raises(ValueError, match="still in the pool"):
            pool.submit(jobs[-1])
        for seen, _ in enumerate(pool.as_completed(futures, timeout=300)):
            if seen == 20:
                victim = pool._workers[0].actor
                os.kill(
                    ray.get(victim.describe.remote(), timeout=60)["pid"], signal.SIGKILL
                )
        records = [future.result(timeout=1) for future in futures]
        deadline = time.monotonic() + 120
        while pool.capacity < capacity and time.monotonic() < deadline:
            time.sleep(0.1)
        assert pool.capacity == capacity  # another pool has taken its place
    assert [r.run_id for r in records] == [j.run_id for j in jobs]
    assert [r.status for r in records] == ["ok"] * 50
    assert [r.stdout_head.strip() for r in records] == [str(i) for i in range(50)]
    # What ran on the killed actor came back as a further attempt of the same run.
    again = [r for r in records if r.attempt > 1]
    assert again
    assert all("lost" in r.earlier[0].error for r in again)


@pytest.mark.slow
def test_what_a_killed_actor_ran_is_started_again_within_seconds(monkeypatch):
    import ray

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Twice the time where others keep the cores busy.
    patience = 2 if os.getloadavg()[0] > os.cpu_count() else 1
    with RayPool(1, actors_per_node=1, require=Level.POSIX) as pool:
        actor = pool._workers[0].actor
        first = ray.get(actor.describe.remote(), timeout=60)
        job = ScriptJob(script=b"import time; time.sleep(2)", limits=_LIMITS)
        future = pool.submit(job)
        time.sleep(1)
        os.kill(first["pid"], signal.SIGKILL)
        killed = time.monotonic()
        while pool.capacity:
            assert time.monotonic() - killed < 1 * patience, "the loss was not noticed"
            time.sleep(0.02)
        while not pool.capacity:
            assert time.monotonic() - killed < 5 * patience, "no pool in its place"
            time.sleep(0.02)
        assert future.result(timeout=60).status == "ok"
        second = ray.get(pool._workers[0].actor.describe.remote(), timeout=60)
    # Nothing was probed or measured again.
    assert second["engine"] == first["engine"]
    assert second["engine"].calibration_ratio == future.result().calibration_ratio


def test_an_engine_that_fails_is_not_used_again():
    from sandbox_exec import SandboxError
    from sandbox_exec.ray_crew import Crew, Worker

    class Ray:
        def get(self, ref, timeout):
            raise RuntimeError("no pool")

        def kill(self, actor):
            pass

    class Describe:
        def remote(self):
            return None

    options = {"slots": 1, "actors_per_node": 1, "start_timeout_s": 1.0}
    crew = Crew(Ray(), options={}, **options)
    crew._engines["node"] = object()
    actor = type("Actor", (), {"describe": Describe()})()
    with pytest.raises(SandboxError, match="could not start its pool: no pool"):
        crew.wait(Worker(node_id="node", actor=actor))
    assert crew._engines == {}


def test_cancelling_a_run_whose_machine_was_lost_ends_its_future():
    from sandbox_exec import ray_pool

    pool = object.__new__(RayPool)
    pool._lock, pool._workers = threading.Condition(), []
    task = ray_pool._Task(ScriptJob(script=b"", task_id="t"), Future())
    task.future.set_running_or_notify_cancel()
    task.lost.append(ray_pool._lost(task, "lost with its machine", ""))
    pool._queue, pool._tasks = deque([task]), {task.job.run_id: task}
    assert pool.cancel(task.job.run_id)
    record = task.future.result(timeout=0)
    assert (record.status, record.killed_by) == ("sandbox_error", "cancel")
    assert (record.attempt, len(record.earlier)) == (2, 1)
    assert not pool._tasks
    assert not pool._queue
