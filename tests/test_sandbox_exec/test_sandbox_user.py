"""The same guarantees for a harness that is an ordinary user."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from sandbox_help import copy_for_user, delegated_cgroup, ordinary_user, run_as

USER = ordinary_user()
pytestmark = pytest.mark.skipif(
    USER is None, reason="needs root, setpriv and the user nobody to test another user"
)


@pytest.fixture(scope="module")
def place():
    # Not below pytest's own folder: that is closed to others, and other sessions of
    # pytest remove its older parts while this one may still be at work.
    with tempfile.TemporaryDirectory(prefix="sandbox-user-") as folder:
        os.chmod(folder, 0o755)
        yield copy_for_user(Path(folder, "copy"), USER)


def test_ordinary_user_without_groups_gets_namespaces_and_a_reason(place):
    done = run_as(USER, place, "-m", "sandbox_exec", "doctor", "--json")
    report = json.loads(done.stdout)
    assert report["level"] == "NAMESPACES", report["missing"]
    assert "not writable" in report["missing"]["FULL"]
    refused = run_as(
        USER,
        place,
        *("-m", "sandbox_exec", "run", "--require=full"),
        str(place / "code/tests/attacks/exit_124.py"),
    )
    assert refused.returncode == 2
    assert "FULL is not available" in refused.stderr
    assert "Delegate=yes" in refused.stderr


def test_ordinary_user_with_a_delegated_group_gets_full(place):
    script = str(place / "code/tests/attacks/sys_exit_zero.py")
    command = ("-m", "sandbox_exec", "run", "--require=full", script)
    with delegated_cgroup(USER) as group:
        done = run_as(USER, place, *command, cgroup=group)
    assert json.loads(done.stdout)["isolation"]["level"] == "FULL", done.stderr


# What each level adds to those below it; the whole corpus is marked slow.
_FAST = {
    "full": "fork_bomb,memory_hog_children,cgroup_escape",
    "namespaces": "fork_bomb,kill_parent,chmod_000,network_connect,proc_environ"
    ",read_private_symlink,submission_symlink_private",
    "landlock": "read_private_symlink,proc_environ",
}


@pytest.mark.parametrize("level", _FAST)
def test_ordinary_user_contains_a_sample_of_attacks(place, level):
    only = _FAST[level]
    command = ("-m", "sandbox_exec", "attack", f"--level={level}", f"--only={only}")
    with delegated_cgroup(USER) as group:
        done = run_as(USER, place, *command, cgroup=group if level == "full" else "")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_ordinary_user_contains_every_attack_at_full(place):
    with delegated_cgroup(USER) as group:
        done = run_as(
            USER,
            place,
            *("-m", "sandbox_exec", "attack", "--level=full"),
            cgroup=group,
            timeout=850,
        )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_ordinary_user_contains_every_attack_at_namespaces(place):
    command = ("-m", "sandbox_exec", "attack", "--level=namespaces")
    done = run_as(USER, place, *command, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
