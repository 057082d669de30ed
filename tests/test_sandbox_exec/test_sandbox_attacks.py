"""The attack corpus at FULL, each attack with its positive control."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from sandbox_help import CORPUS, has

from sandbox_exec import Level, SandboxError, attack

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
    # What it may do is said before it does.
    said = out.index(attack.load(CORPUS, ["exit_124"])[0]["what"])
    assert said < out.index("ok   exit_124")


def test_unknown_attack_is_one_clear_error(capsys):
    from sandbox_exec.__main__ import main

    assert main(["attack", "--level=posix", "--only=nonsense"]) == 2
    assert "no such attack: nonsense" in capsys.readouterr().err
    nowhere = os.path.dirname(sys.executable)
    assert main(["attack", "--level=posix", f"--corpus={nowhere}"]) == 2
    assert "no attack corpus" in capsys.readouterr().err


def _foreign(folder: Path, **changes) -> Path:
    """A corpus that is not the project's: one attack, changed."""
    entry = attack.load(CORPUS, ["write_outside_tmpfs"])[0] | changes
    (folder / "attacks.json").write_text(json.dumps([entry]))
    for name in ("naive.py", "inspect_leftovers.py"):
        shutil.copy(CORPUS / name, folder)
    script = "import os\nfor place in ({outside!r}, {own!r}):\n"
    script += "    try: open(place, 'w').close(); print('WROTE', place)\n"
    script += "    except OSError: pass\nprint(os.listdir('/proc'))\n"
    outside, own = str(folder / "outside"), "/dev/shm/canary"
    text = script.format(outside=outside, own=own)
    (folder / "write_outside_tmpfs.py").write_text(text)
    return folder


def test_needs_that_nobody_knows_are_refused(tmp_path):
    with pytest.raises(SandboxError, match="needs moon_phase, which is unknown"):
        attack.load(_foreign(tmp_path, needs=["moon_phase"]))
    with pytest.raises(SandboxError, match="cannot be set up"):
        attack.load(_foreign(tmp_path, probe="x"))
    with pytest.raises(SandboxError, match="cannot be set up"):
        attack.load(_foreign(tmp_path, id="../x"))


@pytest.mark.parametrize("level", ["posix", "landlock", "naive"])
def test_foreign_attacks_never_run_on_the_live_machine(tmp_path, level):
    corpus = _foreign(tmp_path)
    with pytest.raises(SandboxError, match="not the project's own"):
        attack.main(level, corpus=corpus)
    entry = attack.load(corpus)[0]
    with pytest.raises(SandboxError, match="--really"):
        attack.try_attack(entry, corpus, level)
    if level == "landlock" and not has(Level.LANDLOCK):
        return
    if not has(Level.NAMESPACES):
        with pytest.raises(SandboxError, match="NAMESPACES is not available"):
            attack.try_attack(entry, corpus, level, really=True)
        return
    attack.try_attack(entry, corpus, level, really=True)
    assert not (tmp_path / "outside").exists()
    assert not os.path.exists("/dev/shm/canary")


@pytest.mark.skipif(not has(Level.NAMESPACES), reason="needs user namespaces")
def test_foreign_attacks_run_where_the_level_contains_them(tmp_path):
    corpus = _foreign(tmp_path)
    entry = attack.load(corpus)[0]
    attack.try_attack(entry, corpus, "namespaces")
    assert not (tmp_path / "outside").exists()


def test_without_a_checkout_one_line_says_what_to_do(tmp_path, monkeypatch, capsys):
    from sandbox_exec import attack_corpus
    from sandbox_exec.__main__ import main

    monkeypatch.setattr(attack_corpus, "OWN_CORPUS", tmp_path / "none")
    monkeypatch.chdir(tmp_path)
    assert main(["attack", "--level=posix"]) == 2
    said = capsys.readouterr().err
    assert "run from a checkout of the project" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("called", "name"),
    [("/usr/bin/rpg-sandbox", "rpg-sandbox"), ("x.py", "python -m sandbox_exec")],
)
def test_usage_names_the_command_as_it_was_called(called, name, monkeypatch, capsys):
    from sandbox_exec.__main__ import main

    monkeypatch.setattr(sys, "argv", [called, "--help"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.startswith(f"usage: {name} ")
