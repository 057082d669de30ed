"""What scripts may see of the machine, and that imports cost no compilation."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_help import best, has, job

from sandbox_exec import Level, SandboxError, Slot, environment, run_script
from sandbox_exec.environment import Environment


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
    env = Environment.of()
    values = env.variables(job("", env={"A": "b"}), Slot(0, (0, 1, 2), (5,)), home="/h")
    assert values["OMP_NUM_THREADS"] == values["OPENBLAS_NUM_THREADS"] == "3"
    assert values["CUDA_VISIBLE_DEVICES"] == "5"
    alone = env.variables(job(""), Slot(0, (0,), (5, 7)), home="/h", renumber_gpus=True)
    assert alone["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (values["HOME"], values["A"]) == ("/h", "b")


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
