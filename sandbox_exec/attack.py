"""``python -m sandbox_exec attack``: try a corpus of attacks on this very machine.

Each attack runs in a victim process of its own (the harness that is attacked): it holds
secrets in its memory, environment and descriptors, and runs the script through the
sandbox, or through the corpus's deliberately naive runner as a positive control. What
leaks is judged from outside.
"""

import glob
import json
import os
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from .attack_bait import Bait, bait, digests, serve
from .attack_cage import cage, check_foreign
from .attack_corpus import Attack, find_corpus, load
from .attack_judge import judge
from .isolation import probe_isolation
from .janitor import remove_folder
from .limits import Level
from .protocol import RunRecord
from .slots import available_cores
from .target import bury, run_victim

__all__ = [
    "Verdict",
    "control_reason",
    "find_corpus",
    "load",
    "main",
    "try_attack",
]


@dataclass
class Verdict:
    """One attack at one level: leaks is empty when it was contained."""

    id: str
    category: str
    leaks: list[str]
    skipped: str = ""
    status: str = ""


def main(
    level: str,
    *,
    corpus: Path | None = None,
    only: list[str] | None = None,
    as_json: bool = False,
    really: bool = False,
) -> int:
    """Run the corpus at a level (or 'naive'), print the table; 1 if anything leaked.

    Raises:
        SandboxError: no corpus, an unknown attack, or one that must not run here.
    """
    folder = find_corpus(corpus)
    caged = check_foreign(folder, level, really=really)
    if level != "naive":
        probe_isolation().choose(Level.POSIX, Level.parse(level))
    verdicts = []
    attacks = load(folder, only)
    width = max((len(attack["id"]) for attack in attacks), default=0)
    if caged:
        print("caged: what leaks into the network does not show", file=sys.stderr)
    out = sys.stderr if as_json else sys.stdout
    for attack in attacks:
        # What it may do is said before it can.
        print(f"try  {attack['id']:<{width}}  {attack['what']}", file=out, flush=True)
        verdict = try_attack(attack, folder, level, really=really)
        verdicts.append(verdict)
        if not as_json:
            text = verdict.skipped or "; ".join(verdict.leaks) or "contained"
            word = "skip" if verdict.skipped else "LEAK" if verdict.leaks else "ok"
            print(f"{word:<5}{verdict.id:<{width}}  {text}", flush=True)
    leaks = sum(bool(v.leaks) for v in verdicts)
    skipped = sum(bool(v.skipped) for v in verdicts)
    if as_json:
        print(json.dumps([v.__dict__ for v in verdicts], indent=1))
    else:
        print(
            f"level {level}: {len(verdicts)} attacks, {leaks} leaked, {skipped} skipped"
        )
    return 1 if leaks else 0


def control_reason(attack: Attack) -> str:
    """Why the naive runner cannot be seen to leak on this machine; empty if it can."""
    kind = attack.get("control", "any")
    if kind == "root" and os.geteuid() != 0:
        return "only root's harness has something to lose"
    if kind == "two_cores" and len(available_cores()) < 2:
        return "one core only"
    if kind == "core_file":
        pattern = Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii")
        if pattern.startswith(("|", "/")):
            return "cores go to a handler"
    if kind == "writable_python" and not os.access(os.path.dirname(os.__file__), 2):
        return "the interpreter is not writable for this user"
    if kind == "writable_cgroup":
        places = glob.glob("/sys/fs/cgroup/*/cgroup.procs")
        places += glob.glob("/sys/fs/cgroup/cgroup.procs")
        if not any(os.access(place, os.W_OK) for place in places):
            return "control groups are not writable"
    return ""


def try_attack(
    attack: Attack, corpus: Path, level: str, *, really: bool = False
) -> Verdict:
    """Run one attack and judge it from outside.

    Args:
        attack: of `corpus`. corpus: folder of its script.
        level: to attack, or 'naive'.
        really: run attacks that are not the project's, in a cage (see `attack_cage`).

    Raises:
        SandboxError: it is not the project's, and must not run at this level.
    """
    foreign = check_foreign(corpus, level, really=really)
    verdict = Verdict(attack["id"], attack["category"], [])
    if "gpu" in attack.get("needs", ()) and not glob.glob("/dev/nvidia[0-9]*"):
        verdict.skipped = "no GPU"
        return verdict
    stage = Path(tempfile.mkdtemp(prefix="sbx-stage-"))
    try:
        with bait(stage) as laid:
            if attack.get("probe") == "socket_in_inputs":
                laid.inner.bind(str(stage / "inputs" / "service.sock"))
                laid.inner.listen()
                args = (laid.inner, laid.stop)
                threading.Thread(target=serve, args=args, daemon=True).start()
            _write_spec(attack, corpus, level, stage, laid)
            before = cage(attack, level, stage, foreign=foreign)
            _attack(attack, before, stage, laid, verdict)
    finally:
        remove_folder(stage)
    return verdict


def _write_spec(
    attack: Attack, corpus: Path, level: str, stage: Path, laid: Bait
) -> None:
    """What the victim is to do."""
    spec = {
        "attack": attack,
        "corpus": str(corpus),
        "level": level,
        "stage": str(stage),
        "mark": laid.mark,
        "port": laid.port,
        "answers": laid.answers,
        "as_nobody": level != "naive" and probe_isolation().as_nobody,
    }
    (stage / "spec.json").write_text(json.dumps(spec))


def _attack(
    attack: Attack, cage: list[str], stage: Path, laid: Bait, verdict: Verdict
) -> None:
    before = digests(stage)
    exit_text, late = run_victim(attack, cage, stage)
    survivors = bury(laid.mark)
    result_path = stage / "result.json"
    result = json.loads(result_path.read_text()) if result_path.exists() else None
    expect = attack["expect"]
    leaks = verdict.leaks
    if result is None:
        leaks.append(f"{exit_text}, no record")
    elif result.get("harness_error"):
        leaks.append(f"harness failed: {result['harness_error']}")
    else:
        record = RunRecord.from_dict(result["record"])
        verdict.status = record.status
        leaks += judge(attack, record, result)
        if exit_text != "parent exit 0" and expect.get("parent_alive"):
            leaks.append(exit_text)
    if survivors and expect.get("no_survivors"):
        leaks.append(f"{survivors} survivors")
    if expect.get("untouched"):
        after = digests(stage)
        changed = sorted(k for k in before | after if before.get(k) != after.get(k))
        if changed:
            leaks.append(f"changed {', '.join(changed)}")
    if expect.get("no_core") and list(stage.rglob("core*")):
        leaks.append("core file")
    if late:
        leaks.append("parent hung")
