"""What scripts leave in the host's /dev/shm goes; what others use there stays."""

import multiprocessing
import os
import subprocess
import sys
import time

import pytest
from sandbox_help import has, job
from sandbox_scripts import SCRIPTS

from sandbox_exec import Level, LocalPool, Slot
from sandbox_exec.shm import ShmKeeper


def test_what_an_ended_script_left_goes(tmp_path):
    keeper = ShmKeeper(tmp_path)
    (tmp_path / "old").write_text("x")
    use = keeper.begin()
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "in").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    keeper.end(use)
    assert [p.name for p in tmp_path.iterdir()] == ["old"]


def test_what_a_living_script_may_own_stays_until_its_end(tmp_path):
    keeper = ShmKeeper(tmp_path)
    first, second = keeper.begin(), keeper.begin()
    (tmp_path / "whose").write_text("x")
    keeper.end(first)
    assert (tmp_path / "whose").exists()
    time.sleep(0.1)
    third = keeper.begin()  # too late to own it
    keeper.end(second)
    assert not (tmp_path / "whose").exists()
    keeper.end(third)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about /dev/shm")
def test_semaphores_of_other_processes_stay():
    keeper = ShmKeeper()
    use = keeper.begin()
    text = "import multiprocessing as m; s = m.get_context('spawn').Semaphore()\n"
    text += "print(s._semlock.name, flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    name = child.stdout.readline().decode().strip().lstrip("/")
    keeper.end(use)
    assert os.path.exists(f"/dev/shm/sem.{name}")
    child.communicate(b"\n", timeout=30)
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(not has(Level.LANDLOCK), reason="needs Landlock")
def test_workers_find_their_semaphores_while_other_slots_end():
    options = {"level": Level.LANDLOCK, "calibrate": False, "rerun_contended": False}
    with LocalPool([Slot(0, ()), Slot(1, ())], **options) as pool:
        spawns = pool.submit(job(SCRIPTS["pool_spawn"], memory_mb=1024))
        while not spawns.done():
            assert pool.submit(job("1")).result(60).status == "ok"
    assert spawns.result().status == "ok", spawns.result().stderr_head
