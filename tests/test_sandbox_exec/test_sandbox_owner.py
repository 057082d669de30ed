"""What a killed harness left is told from what a living one owns."""

import os
import subprocess
import sys

import pytest

from sandbox_exec import household, owner

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="names need /proc"
)


def _name_of_the_dead() -> str:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = owner.owner_name(process.pid)
    assert not owner.is_abandoned(name)
    process.communicate()
    return name


def test_only_the_dead_of_our_own_pid_namespace_abandon_things():
    name = _name_of_the_dead()
    assert owner.is_abandoned(name)
    assert owner.is_abandoned(f"{name}-abc_12")
    mine = owner.owner_name(os.getpid())
    assert not owner.is_abandoned(mine)
    assert not owner.is_abandoned(f"{mine}-abc_12")
    pid, start, space, boot = mine.split("-")[1:]
    again = f"sbx-{pid}-{int(start) + 1}"  # a pid used again
    assert owner.is_abandoned(f"{again}-{space}-{boot}")
    assert not owner.is_abandoned(f"{again}-{int(space) + 1}-{boot}")
    assert not owner.is_abandoned(f"{again}-{space}-{int(boot) + 1}")  # other machine
    for other in ("sbx-harness", "sbx-1-2", "sbx-stage-1-2-x-4", f"{again}-{space}"):
        assert not owner.is_abandoned(other)


def test_folders_of_dead_harnesses_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(household.tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{_name_of_the_dead()}-abc_12"
    (left / "run1" / "work").mkdir(parents=True)
    mine = tmp_path / f"{owner.owner_name(os.getpid())}-abc_12"
    foreign = tmp_path / "sbx-bait-1-2-3"
    target = tmp_path / "target"
    for folder in (mine, foreign, target):
        folder.mkdir()
    link = tmp_path / f"{left.name}x"
    link.symlink_to(target)
    household._sweep_folders()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        p.name for p in (mine, foreign, target, link)
    )
