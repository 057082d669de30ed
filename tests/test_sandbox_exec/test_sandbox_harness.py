"""A pool's process: killed, interrupted, or busy with JAX; nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sandbox_help import (
    REPO,
    best,
    cgroups,
    children,
    has,
    levels,
    marked,
)

from sandbox_exec import Level

_HARNESS = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in the foreground
sys.path.insert(0, sys.argv[1])
from sandbox_exec import Level, Limits, LocalPool, ScriptJob
script = '''
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(120)
    os._exit(0)
open("submission.csv", "w").write("x")
time.sleep(120)
'''
job = ScriptJob(script=script.encode(), limits=Limits(wall_s=100),
                env={"MARK": sys.argv[2]})
with LocalPool(1, level=sys.argv[3], calibrate=False) as pool:
    future = pool.submit(job)
    print("started", flush=True)
    future.result()
"""


def _harness(mark: str, level: Level, tmp_path: Path) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", _HARNESS, REPO, mark, level.name],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout.readline() == b"started\n"
    deadline = time.monotonic() + 60
    # Seen twice: a process between fork and exec has its parent's environment.
    looks = 0
    while looks < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
        looks = looks + 1 if len(marked(f"MARK={mark}")) >= 2 else 0
    assert looks == 2
    process.stdout.close()
    return process


def _gone(
    mark: str, process: subprocess.Popen, tmp_path: Path, within_s: float
) -> None:
    deadline = time.monotonic() + within_s
    while marked(f"MARK={mark}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert marked(f"MARK={mark}") == []
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = [*cgroups(process.pid), *tmp_path.glob("sbx-*")]
        if not left:
            break
        time.sleep(0.02)
    assert left == []


@pytest.mark.parametrize("level", [x for x in Level if x >= Level.LANDLOCK])
def test_a_killed_harness_leaves_no_survivor(tmp_path, level):
    if level not in levels():
        pytest.skip(f"no {level.name} here")
    mark = f"killed{os.getpid()}{level.name}"
    process = _harness(mark, level, tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _gone(mark, process, tmp_path, within_s=1.0)


def test_ctrl_c_stops_everything(tmp_path):
    mark = f"interrupted{os.getpid()}"
    process = _harness(mark, best(), tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) != 0
    _gone(mark, process, tmp_path, within_s=0.5)


_WITH_JAX = """
import os, sys, threading, time, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("error")
import jax, jax.numpy as jnp
from sandbox_exec import LocalPool, ScriptJob
work = jax.jit(lambda x: (x @ x).sum())
x = jnp.ones((200, 200))
work(x).block_until_ready()
stop = threading.Event()
def busy():
    while not stop.is_set():
        work(x).block_until_ready()
        time.sleep(0.005)
thread = threading.Thread(target=busy)
thread.start()
with LocalPool(1, level=sys.argv[2], calibrate=False, rerun_contended=False) as pool:
    for _ in range(int(sys.argv[3])):
        assert pool.submit(ScriptJob(script=b"print(1)")).result(60).status == "ok"
stop.set()
thread.join()
print("done")
"""


def _with_jax(runs: int) -> None:
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-c", _WITH_JAX, REPO, best().name, str(runs)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
    assert "fork" not in done.stderr


def test_jax_in_the_harness():
    _with_jax(2)


@pytest.mark.slow
def test_two_hundred_runs_beside_jax():
    _with_jax(200)


@pytest.mark.skipif(not has(Level.FULL), reason="needs control groups")
def test_leftovers_of_a_killed_harness_are_swept(tmp_path):
    """Should the janitor be killed as well, the next harness cleans up."""
    mark = f"swept{os.getpid()}"
    process = _harness(mark, Level.FULL, tmp_path)
    for pid in children(process.pid):
        if b"janitor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    assert cgroups(process.pid)
    code = "import sys; sys.path.insert(0, sys.argv[1])\n"
    code += "from sandbox_exec.household import HOUSEHOLD; HOUSEHOLD.tree()"
    subprocess.run([sys.executable, "-c", code, REPO], check=True)
    assert cgroups(process.pid) == []
    assert marked(f"MARK={mark}") == []
