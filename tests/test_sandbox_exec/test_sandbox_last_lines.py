"""What a script printed last, and where it was, outlive its being killed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from sandbox_help import REPO, best, job, levels

from sandbox_exec import Level, run_script

# Its last line has not filled any buffer; then it hangs in C, or in Python.
_HANGS = {
    "python": "while True: pass",
    "c": "sum(range(10**12))",
    "child": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', CODE])",
}


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("kind", _HANGS)
def test_a_script_killed_at_its_limit_shows_its_last_lines(level, kind):
    if level not in levels():
        pytest.skip(f"no {level.name} here")
    if kind != "python" and level not in (best(), Level.LANDLOCK):
        pytest.skip("as at the best level")
    text = f"""
CODE = "print('from a child'); import time; time.sleep(60)"
def last_seen():
    {_HANGS[kind].replace(chr(10), chr(10) + "    ")}
try: 1 / 0
except ZeroDivisionError: import traceback; traceback.print_exc()
print("epoch", 7); print("no end of line", end="")
last_seen()
"""
    record = run_script(job(text, wall_s=0.7), level=level)
    assert (record.status, record.delta_s) == ("timeout", 0.7)
    assert (record.exit_code, record.term_signal) == (None, None)
    assert record.stdout_head.startswith("epoch 7\n")
    assert ("from a child" in record.stdout_head) == (kind == "child")
    assert "ZeroDivisionError" in record.stderr_head
    assert "in last_seen" in record.stderr_head.rpartition("most recent call first")[2]
    assert record.reap_s < 5


def test_a_script_that_ignores_the_question_gets_no_more_time():
    text = "import signal, time\nsignal.signal(signal.SIGABRT, signal.SIG_IGN)\n"
    text += "open('submission.csv', 'w').write('x')\nwhile True: pass"
    started = time.monotonic()
    record = run_script(job(text, wall_s=0.5), level=best())
    assert (record.status, record.delta_s) == ("timeout", 0.5)
    assert record.reap_s < 2
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("level", list(Level))
def test_cpu_seconds_are_a_limit_of_their_own(level):
    if level not in levels():
        pytest.skip(f"no {level.name} here")
    busy = "print('on', flush=True)\ndef last_seen():\n  while True: pass\nlast_seen()"
    record = run_script(job(busy, wall_s=60, cpu_s=0.4), level=level)
    assert (record.status, record.cpu_s) == ("timeout", 0.4)
    assert 0.4 <= record.delta_s < 60
    assert record.stdout_head == "on\n"
    assert "in last_seen" in record.stderr_head
    # Waiting uses none of it; then the wall stops the script.
    idle = "import time; time.sleep(60)"
    record = run_script(job(idle, wall_s=1.5, cpu_s=0.9), level=level)
    assert (record.status, record.delta_s) == ("timeout", 1.5)
    assert record.cpu_s < 0.9


@pytest.mark.parametrize("level", [Level.NAMESPACES, Level.FULL])
def test_cpu_seconds_of_child_processes_count(level):
    if level not in levels():
        pytest.skip(f"no {level.name} here")
    text = "import subprocess, sys\n"
    text += "subprocess.run([sys.executable, '-c', 'while True: pass'])"
    record = run_script(job(text, wall_s=30, cpu_s=0.5), level=level)
    assert (record.status, record.cpu_s) == ("timeout", 0.5)


def test_the_interpreters_own_start_is_kept(tmp_path):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import sitecustomize as s\n"
    code += "print(sys.modules['sitecustomize'].__file__); print(sys.path[0])\n"
    code += "print(sys.stdout.line_buffering)"
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
    start = Path(REPO, "sandbox_exec", "script_start.py").read_text()
    (mine / "sitecustomize.py").write_text(start)
    (other / "sitecustomize.py").write_text("print('the other')\n")
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(mine)],
        env={"PYTHONPATH": str(other)},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = ["the other", str(mine / "sitecustomize.py"), str(mine), "True"]
    assert done.stdout.splitlines() == expected
