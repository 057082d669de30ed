"""What scripts take for granted works at every level, as root and as a user."""

import json
import tempfile
from pathlib import Path

import pytest
from sandbox_help import copy_for_user, delegated_cgroup, has, ordinary_user, run_as
from sandbox_scripts import SCRIPTS, failures, needs, runnable

from sandbox_exec import Level

LEVELS = [Level.FULL, Level.NAMESPACES, Level.LANDLOCK]
# Seconds, not minutes: one of each kind that a level once got wrong.
QUICK = ["getpass", "temp_private_in_work", "manager", "localhost_by_name", "locale"]
USER = ordinary_user()


def _level(level: Level) -> str:
    if not has(level):
        pytest.skip(f"this machine does not hold {level.name}")
    return level.name


def test_there_are_fifty():
    assert len(SCRIPTS) >= 50
    assert needs(SCRIPTS["torchrun"]) == ["torch"]
    assert needs(SCRIPTS["sqlite"]) == []


@pytest.mark.parametrize("level", LEVELS)
def test_a_few_scripts_run(level):
    assert failures(_level(level), QUICK) == {}


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_all_scripts_run(level):
    assert failures(_level(level), runnable(level.name)) == {}


@pytest.fixture(scope="module")
def place():
    if USER is None:
        pytest.skip("needs root, setpriv and the user nobody to test another user")
    with tempfile.TemporaryDirectory(prefix="sandbox-user-") as folder:
        Path(folder).chmod(0o755)
        yield copy_for_user(Path(folder, "copy"), USER)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_all_scripts_run_for_a_user(place, level):
    command = [str(place / "code" / "sandbox_scripts.py"), _level(level)]
    with delegated_cgroup(USER) as group:
        group = group if level is Level.FULL else ""
        done = run_as(USER, place, *command, cgroup=group, timeout=850)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["failed"] == {}
    assert len(report["ran"]) >= 40
