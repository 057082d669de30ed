"""Control groups of both versions, against a stand-in for the kernel's files."""

import errno
from pathlib import Path

import pytest

from sandbox_exec import Limits
from sandbox_exec import cgroup_files as files
from sandbox_exec.cgroup import CgroupTree, CgroupUnavailable, RunCgroup, open_tree

FILES_V2 = {
    "cgroup.controllers": "cpuset cpu memory pids",
    "cgroup.subtree_control": "",
    "cgroup.procs": "",
    "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
    "memory.events": "low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\n",
    "memory.peak": "4096000",
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "pids.max": "max",
    "pids.events": "max 3\n",
    "pids.peak": "17",
    "pids.current": "2",
    "cpuset.cpus": "",
}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A folder in which mkdir makes a v2 group and control files keep what they get."""
    real_mkdir = Path.mkdir

    def mkdir(self, *args, **kwargs):
        real_mkdir(self, *args, **kwargs)
        for name, text in FILES_V2.items():
            if not (self / name).exists():
                (self / name).write_text(text)

    def write(path, text):
        text = str(text)
        if path.name == "cgroup.subtree_control":
            if path.parent.name == "busy":
                raise OSError(errno.EBUSY, "busy")
            text = f"{path.read_text()} {text.lstrip('+')}".strip()
        path.write_text(text)

    def rmdir(path, **_):
        for child in Path(path).iterdir():
            child.unlink()
        Path(path).rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(files, "write", write)
    monkeypatch.setattr(files, "rmdir", rmdir)
    top = tmp_path / "cgroup"
    top.mkdir()
    mounts = [("cgroup2", "/", str(top), {"rw"})]
    monkeypatch.setattr(files, "mounts", lambda: mounts)
    monkeypatch.setattr(files, "own_groups", lambda: {"": "/user/me"})
    return top


def test_v2_limits_and_counters(kernel):
    (kernel / "user").mkdir()
    (kernel / "user" / "me").mkdir()
    tree = open_tree()
    assert tree.version == 2
    assert tree.roots[""].parent == kernel / "user" / "me"
    assert "memory" in tree.description
    assert tree.can_pin()
    limits = Limits(memory_mb=100, pids=10)
    group = tree.create("run1", limits, (1, 3))
    place = tree.roots[""] / "run1"
    assert (place / "memory.max").read_text() == str(100 << 20)
    assert (place / "memory.swap.max").read_text() == "0"
    assert (place / "memory.oom.group").read_text() == "1"
    assert (place / "pids.max").read_text() == "11"
    assert (place / "cpuset.cpus").read_text() == "1,3"
    assert group.pinned
    group.start_clock()
    (place / "cpu.stat").write_text("usage_usec 1750000\n")
    assert group.cpu_s() == pytest.approx(0.25)
    assert (group.oom_kills(), group.pids_refused()) == (2, 3)
    assert (group.memory_peak(), group.pids_peak()) == (4096000, 17)
    group.add([42])
    assert (place / "cgroup.procs").read_text() == "42"
    group.remove()
    assert not place.exists()


def test_v2_climbs_past_a_group_that_cannot_delegate(kernel, monkeypatch):
    (kernel / "busy").mkdir()
    (kernel / "busy" / "cgroup.procs").write_text("1\n2\n")
    monkeypatch.setattr(files, "own_groups", lambda: {"": "/busy"})
    tree = open_tree()
    assert tree.roots[""].parent == kernel


def test_missing_controllers_are_named(kernel):
    (kernel / "cgroup.controllers").write_text("cpu")
    with pytest.raises(CgroupUnavailable, match="no memory, pids controller"):
        open_tree()


def test_denied_limits_are_one_clear_error(kernel, monkeypatch):
    tree = open_tree()

    def refuse(path, text):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "write", refuse)
    with pytest.raises(CgroupUnavailable, match="cannot set up a control group"):
        tree.create("run1", Limits(), ())
    assert not (tree.roots[""] / "run1").exists()


def test_v1_counters(tmp_path):
    paths = {name: tmp_path / name for name in ("memory", "pids", "cpuacct")}
    for path in paths.values():
        path.mkdir()
    (paths["cpuacct"] / "cpuacct.usage").write_text("2500000000\n")
    (paths["memory"] / "memory.oom_control").write_text("under_oom 0\noom_kill 5\n")
    (paths["memory"] / "memory.max_usage_in_bytes").write_text("77\n")
    (paths["pids"] / "pids.events").write_text("max 0\n")
    group = RunCgroup(version=1, paths=paths, pinned=False)
    group.start_clock()
    (paths["cpuacct"] / "cpuacct.usage").write_text("2600000000\n")
    assert group.cpu_s() == pytest.approx(0.1)
    assert (group.oom_kills(), group.memory_peak(), group.pids_refused()) == (5, 77, 0)
    assert group.pids_peak() == 0
    assert CgroupTree(1, paths).description == "v1: cpuacct, memory, pids"


def test_paths_inside_a_container():
    place = files.place("/docker/abc", "/", "/docker/abc/usr")
    assert place == Path("/usr")
    assert files.place("/", "/", "/no/such/group") == Path("/")
