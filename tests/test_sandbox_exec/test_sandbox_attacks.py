"""The attack corpus at FULL, each attack with its positive control."""

import os
import sys

import pytest
from sandbox_help import CORPUS, has

from sandbox_exec import Level, attack

ATTACKS = attack.load(CORPUS)
# One of each kind, chosen to be quick; the whole corpus is marked slow.
QUICK = (
    "double_fork_daemon",
    "fork_bomb",
    "write_outside_tmpfs",
    "sys_exit_3",
    "proc_environ",
    "socket_families",
    "socket_in_inputs",
    "kill_init",
    "modify_grader",
    "affinity_escape",
    "submission_symlink_private",
    "shm_leftover",
    "odd_names",
)


def test_corpus_is_complete():
    ids = [entry["id"] for entry in ATTACKS]
    assert len(ids) == len(set(ids)) >= 85
    files = {path.stem for path in CORPUS.glob("*.py")} - {"naive", "inspect_leftovers"}
    assert files == set(ids)
    assert set(QUICK) <= set(ids)
    for entry in ATTACKS:
        assert entry["expect"], entry["id"]


def _params(level: str, quick: tuple[str, ...] = QUICK) -> list:
    slow = (pytest.mark.slow,)
    return [
        pytest.param(
            entry,
            id=f"{level}-{entry['id']}",
            marks=() if entry["id"] in quick else slow,
        )
        for entry in ATTACKS
    ]


def _check(entry: dict, level: Level) -> None:
    if not has(level):
        pytest.skip(f"this machine does not hold {level.name}")
    verdict = attack.try_attack(entry, CORPUS, level.name)
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    assert verdict.leaks == []


@pytest.mark.parametrize("entry", _params("full"))
def test_full_contains(entry):
    _check(entry, Level.FULL)


@pytest.mark.slow
@pytest.mark.parametrize("entry", _params("namespaces"))
def test_namespaces_contains(entry):
    _check(entry, Level.NAMESPACES)


# Nothing stops a fork bomb here but its own deadline.
@pytest.mark.parametrize(
    "entry", _params("naive", tuple(name for name in QUICK if name != "fork_bomb"))
)
def test_naive_runner_is_seen_to_leak(entry):
    if not has(Level.NAMESPACES):
        pytest.skip("the controls are caged in a pid namespace")
    reason = attack.control_reason(entry)
    if reason:
        pytest.skip(reason)
    verdict = attack.try_attack(entry, CORPUS, "naive")
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    assert verdict.leaks, "the attack does not show against a runner without defences"


def test_command_line_prints_a_table(capsys):
    level = "full" if has(Level.FULL) else "posix"
    assert attack.main(level, only=["sys_exit_3", "exit_124"]) == 0
    out = capsys.readouterr().out
    assert "sys_exit_3" in out
    assert "2 attacks, 0 leaked" in out


def test_unknown_attack_is_one_clear_error(capsys):
    from sandbox_exec.__main__ import main

    assert main(["attack", "--level=posix", "--only=nonsense"]) == 2
    assert "no such attack: nonsense" in capsys.readouterr().err
    nowhere = os.path.dirname(sys.executable)
    assert main(["attack", "--level=posix", f"--corpus={nowhere}"]) == 2
    assert "no attack corpus" in capsys.readouterr().err
