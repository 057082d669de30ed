"""What scripts may see of the machine, and that imports cost no compilation."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_help import best, has, job

from sandbox_exec import (
    Level,
    LocalPool,
    SandboxError,
    Slot,
    cpu_view,
    environment,
    run_script,
)
from sandbox_exec.environment import Environment
from sandbox_exec.slots import available_cores


def test_folders_cover_the_interpreter_and_no_more():
    env = Environment.of()
    assert env.python == os.path.abspath(sys.executable)
    shown = (*env.folders, "/usr")
    for needed in (os.__file__, env.site, os.path.realpath(sys.executable)):
        real = os.path.realpath(needed)
        assert any(real.startswith(os.path.realpath(top) + "/") for top in shown)
    home = os.path.realpath(os.path.expanduser("~"))
    assert not any(home == top or home.startswith(top + "/") for top in env.folders)


def test_an_interpreter_that_would_show_the_home_is_refused(monkeypatch):
    top = Environment.of().folders
    if not top:
        pytest.skip("the interpreter is the system's own")
    monkeypatch.setenv("HOME", top[0])
    environment._environment.cache_clear()
    with pytest.raises(SandboxError, match="whole home folder"):
        Environment.of()
    environment._environment.cache_clear()


def test_variables_follow_the_slot():
    env, places = Environment.of(), {"home": "/h", "start": "/s"}
    values = env.variables(job("", env={"A": "b"}), Slot(0, (0, 1, 2), (5,)), **places)
    assert values["OMP_NUM_THREADS"] == values["OPENBLAS_NUM_THREADS"] == "3"
    assert values["CUDA_VISIBLE_DEVICES"] == "5"
    alone = env.variables(job(""), Slot(0, (0,), (5, 7)), renumber_gpus=True, **places)
    assert alone["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (values["HOME"], values["PYTHONPATH"], values["A"]) == ("/h", "/s", "b")


def test_bytecode_is_counted_and_written(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "one.py").write_text("x = 1\n")
    (tmp_path / "two.py").write_text("y = 2\n")
    env = replace(Environment.of(), site=str(tmp_path))
    assert env.uncompiled() == 2
    assert env.cache_tag == sys.implementation.cache_tag
    assert env.compile_ahead()
    assert env.uncompiled() == 0


@pytest.mark.skipif(not has(Level.NAMESPACES), reason="needs user namespaces")
def test_an_interpreter_below_tmp_is_not_covered_by_the_scripts_tmp():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        command = [sys.executable, "-m", "venv", "--without-pip", f"{folder}/venv"]
        subprocess.run(command, check=True)
        python = Path(folder, "venv", "bin", "python")
        text = "import sys; print(sys.prefix); open('/tmp/x', 'w').close()"
        record = run_script(job(text), python=python)
    assert record.status == "ok", record.error + record.stderr_head
    assert record.stdout_head.strip().endswith("/venv")


@pytest.mark.skipif(best() < Level.NAMESPACES, reason="needs user namespaces")
def test_the_file_system_is_read_only_but_for_its_own_places():
    text = """
import os
open("a", "w").close(); open("/tmp/a", "w").close(); open("/dev/shm/a", "w").close()
for place in "/ /usr /etc /dev /proc /sandbox /job/input".split() + [os.__file__[:-5]]:
    try:
        open(os.path.join(place, "canary"), "w").close()
        print("WROTE", place)
    except OSError:
        pass
print(os.getuid())
"""
    record = run_script(job(text))
    assert record.status == "ok", record.stderr_head
    assert "WROTE" not in record.stdout_head
    assert record.stdout_head == "1000\n"


@pytest.mark.skipif(
    os.geteuid() != 0 or not has(Level.NAMESPACES), reason="about a harness of root"
)
def test_roots_scripts_are_not_root(tmp_path_factory):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "data").write_text("1")
        record = run_script(job("print(open('input/data').read())", inputs=folder))
        assert record.stdout_head == "1\n"
        assert record.isolation.layers["user"] == "an id that nobody else has"
        # Inputs that only root may read are still usable, and the record says how.
        (Path(folder) / "other").write_text("2")
        os.chmod(Path(folder) / "other", 0o600)
        record = run_script(job("print(open('input/other').read())", inputs=folder))
        assert record.stdout_head == "2\n"
        assert record.isolation.layers["user"] == "root without capabilities"


# What a program takes for granted; as root's script all of it used to be out of reach.
ORDINARY = """
import ctypes.util, getpass, os, pwd, socket
print(open("/etc/hosts").read().count("localhost"))
print(pwd.getpwuid(os.getuid()).pw_name, getpass.getuser())
server = socket.create_server(("localhost", 0))
socket.create_connection(server.getsockname()).close()
print(socket.gethostbyname("localhost"), bool(ctypes.util.find_library("c")))
print(os.path.exists("/etc/ld.so.cache") or not os.path.exists("/lib64"))
for place in ("/etc", "/sys", "/sys/devices/system/cpu", "/var", "/sandbox"):
    assert os.stat(place).st_mode & 0o777 == 0o755, place
"""
_ORDINARY_SAYS = "2\nsandbox sandbox\n127.0.0.1 True\nTrue\n"


@pytest.mark.parametrize("level", [Level.FULL, Level.NAMESPACES])
def test_ordinary_files_of_the_system_are_there(level):
    if not has(level):
        pytest.skip(f"no {level.name} here")
    record = run_script(job(ORDINARY), level=level)
    assert record.status == "ok", record.stderr_head
    assert record.stdout_head == _ORDINARY_SAYS


@pytest.mark.parametrize("level", list(Level))
def test_scripts_inherit_three_descriptors(level):
    if not has(level):
        pytest.skip(f"no {level.name} here")
    text = """
import os
found = {}
for name in os.listdir("/proc/self/fd"):
    try: found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    except OSError: pass  # that of the listing
print(sorted(found), [x for x in found.values() if not x.startswith(("pipe", "/dev"))])
"""
    record = run_script(job(text), level=level)
    assert record.stdout_head == "[0, 1, 2] []\n", record.stderr_head


@pytest.mark.skipif(not has(Level.NAMESPACES), reason="needs user namespaces")
def test_process_1_holds_no_namespace_either():
    text = """
import os
try: print([os.readlink(f"/proc/1/fd/{x}")[:6] for x in os.listdir("/proc/1/fd")])
except OSError: print("closed")
"""
    record = run_script(job(text), level=Level.NAMESPACES)
    assert "user:" not in record.stdout_head


def test_scripts_count_the_cores_of_their_slot():
    core = available_cores()[-1]
    text = """
import json, os, multiprocessing
def numbers(path, word):
    try: return sum(line.startswith(word) for line in open(path))
    except OSError: return None
print(json.dumps([os.cpu_count(), multiprocessing.cpu_count(),
    sorted(os.sched_getaffinity(0)), numbers("/proc/cpuinfo", "processor"),
    numbers("/proc/stat", "cpu"),
    {k: os.environ[k] for k in ("PYTHON_CPU_COUNT", "OMP_NUM_THREADS", "NPROC")}]))
"""
    for level in (Level.FULL, Level.NAMESPACES, Level.LANDLOCK):
        if not has(level):
            continue
        with LocalPool([Slot(0, (core,))], level=level, calibrate=False) as pool:
            record = pool.submit(job(text)).result(timeout=60)
        count, same, allowed, shown, ticks, names = json.loads(record.stdout_head)
        assert (count, same, allowed) == (1, 1, [core]), level
        if level >= Level.NAMESPACES:  # no file can be put over another below it
            assert (shown, ticks) == (1, 2)  # one core, and the sum
        assert set(names.values()) == {"1"}


def test_files_about_the_processor_are_rewritten_for_a_slot(monkeypatch):
    info = "processor\t: 0\nmodel\t: a\n\nprocessor\t: 1\nmodel\t: b\n\n"
    stat = "cpu  9 9 9 9\ncpu0 1 2 3 4\ncpu1 5 6 7 8 9\ncpu2 1 1 1 1\nbtime 7\n"
    assert cpu_view._cpuinfo(info, {1}) == "processor\t: 1\nmodel\t: b\n\n"
    assert cpu_view._cpuinfo("Hardware\t: x\n", {1}) == "Hardware\t: x\n"
    seen = cpu_view._stat(stat, {0, 1}).splitlines()
    assert seen[0] == "cpu  6 8 10 12 9 0 0 0 0 0"
    assert seen[1:] == ["cpu0 1 2 3 4", "cpu1 5 6 7 8 9", "btime 7"]
    files = cpu_view.cpu_files((5, 2))
    assert files["/sys/devices/system/cpu/online"] == b"2,5\n"
    assert cpu_view.cpu_files(()) == {}
