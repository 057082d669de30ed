"""``python -m sandbox_exec attack``: try a corpus of attacks on this very machine.

Each attack runs in a victim process of its own (the harness that is attacked): it holds
secrets in its memory, environment and descriptors, and runs the script through the
sandbox, or through the corpus's deliberately naive runner as a positive control. What
leaks is judged from outside.
"""

import contextlib
import glob
import hashlib
import json
import os
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import SandboxError
from .isolation import probe_isolation
from .janitor import remove_folder
from .limits import Level
from .protocol import RunRecord
from .slots import available_cores
from .target import bury, run_victim

_LATE_S = 2.0  # grace on a loaded machine, on top of what an attack allows


@dataclass
class Verdict:
    """One attack at one level: leaks is empty when it was contained."""

    id: str
    category: str
    leaks: list[str]
    skipped: str = ""
    status: str = ""


def find_corpus(folder: Path | None = None) -> Path:
    """Return the folder that holds attacks.json.

    Raises:
        SandboxError: not found; the corpus is part of the source tree, not the wheel.
    """
    here = Path(__file__).resolve().parent.parent
    places = [folder] if folder else [here / "tests/attacks", Path("tests/attacks")]
    for place in places:
        if (place / "attacks.json").is_file():
            return place.resolve()
    raise SandboxError(
        "no attack corpus: run from a checkout of the project, or name the folder that "
        f"holds attacks.json with --corpus (looked in {', '.join(map(str, places))})"
    )


def load(corpus: Path, only: list[str] | None = None) -> list[dict]:
    """Read the corpus.

    Raises:
        SandboxError: an id in `only` does not exist.
    """
    attacks = json.loads((corpus / "attacks.json").read_text(encoding="utf-8"))
    if only is None:
        return attacks
    known = {attack["id"]: attack for attack in attacks}
    wrong = [name for name in only if name not in known]
    if wrong:
        raise SandboxError(f"no such attack: {', '.join(wrong)}")
    return [known[name] for name in only]


def main(
    level: str,
    *,
    corpus: Path | None = None,
    only: list[str] | None = None,
    as_json: bool = False,
) -> int:
    """Run the corpus at a level (or 'naive'), print the table; 1 if anything leaked."""
    folder = find_corpus(corpus)
    if level != "naive":
        probe_isolation().choose(Level.POSIX, Level.parse(level))
    verdicts = []
    attacks = load(folder, only)
    width = max(len(attack["id"]) for attack in attacks)
    for attack in attacks:
        verdict = try_attack(attack, folder, level)
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


def control_reason(attack: dict) -> str:
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


def try_attack(attack: dict, corpus: Path, level: str) -> Verdict:
    """Run one attack and judge it from outside."""
    verdict = Verdict(attack["id"], attack["category"], [])
    if "gpu" in attack.get("needs", ()) and not glob.glob("/dev/nvidia[0-9]*"):
        verdict.skipped = "no GPU"
        return verdict
    stage = Path(tempfile.mkdtemp(prefix="sbx-stage-"))
    try:
        with _bait(stage) as bait:
            _attack(attack, corpus, level, stage, bait, verdict)
    finally:
        remove_folder(stage)
    return verdict


@contextlib.contextmanager
def _bait(stage: Path) -> Iterator[dict]:
    """Everything worth stealing or breaking, and services that must stay unreached."""
    mark = "sbx" + secrets.token_hex(8)
    for name in ("inputs", "private", "outside", "grader", "home", "tmp"):
        (stage / name).mkdir()
    for name in ("train", "test"):
        (stage / "inputs" / f"{name}.csv").write_text("id,target\n1,0\n" * 20)
    answers = stage / "private" / "answers.csv"
    answers.write_text(f"id,target\n1,CANARY-ANSWERS-{secrets.token_hex(8)}\n")
    (stage / "outside" / "victim.txt").write_text("untouched\n")
    (stage / "grader" / "grader.py").write_text("def grade():\n    return 0.0\n")
    (stage / "grader" / "ledger.txt").write_text("start\n")
    stop = threading.Event()
    servers = []
    try:
        tcp = socket.create_server(("127.0.0.1", 0))
        servers.append(tcp)
        for address in ("\0" + mark, str(stage / "outside" / "host.sock")):
            server = socket.socket(socket.AF_UNIX)
            servers.append(server)
            server.bind(address)
            server.listen()
        inner = socket.socket(socket.AF_UNIX)
        servers.append(inner)
        for server in servers[:3]:
            threading.Thread(target=_serve, args=(server, stop), daemon=True).start()
        yield {
            "mark": mark,
            "port": tcp.getsockname()[1],
            "answers": str(answers),
            "inner": inner,
            "stop": stop,
        }
    finally:
        stop.set()
        for server in servers:
            server.close()


def _serve(server: socket.socket, stop: threading.Event) -> None:
    server.settimeout(0.2)
    while not stop.is_set():
        try:
            peer, _ = server.accept()
        except TimeoutError:
            continue
        except OSError:
            return
        with contextlib.suppress(OSError), peer:
            peer.sendall(b"CANARY-NET")


def _digests(stage: Path) -> dict[str, str]:
    found = {}
    for name in ("inputs", "private", "outside", "grader"):
        for path in sorted((stage / name).rglob("*")):
            if path.is_file():
                key = f"{name}/{path.name}"
                found[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _attack(
    attack: dict, corpus: Path, level: str, stage: Path, bait: dict, verdict: Verdict
) -> None:
    if attack.get("probe") == "socket_in_inputs":
        bait["inner"].bind(str(stage / "inputs" / "service.sock"))
        bait["inner"].listen()
        args = (bait["inner"], bait["stop"])
        threading.Thread(target=_serve, args=args, daemon=True).start()
    before = _digests(stage)
    spec = {
        "attack": attack,
        "corpus": str(corpus),
        "level": level,
        "stage": str(stage),
        "mark": bait["mark"],
        "port": bait["port"],
        "answers": bait["answers"],
        "as_nobody": level != "naive" and probe_isolation().as_nobody,
    }
    (stage / "spec.json").write_text(json.dumps(spec))
    exit_text, late = run_victim(attack, level, stage)
    survivors = bury(bait["mark"])
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
        leaks += _judge(attack, record, result, stage)
        if exit_text != "parent exit 0" and expect.get("parent_alive"):
            leaks.append(exit_text)
    if survivors and expect.get("no_survivors"):
        leaks.append(f"{survivors} survivors")
    if expect.get("untouched"):
        after = _digests(stage)
        changed = sorted(k for k in before | after if before.get(k) != after.get(k))
        if changed:
            leaks.append(f"changed {', '.join(changed)}")
    if expect.get("no_core") and list(stage.rglob("core*")):
        leaks.append("core file")
    if late:
        leaks.append("parent hung")


def _judge(attack: dict, record: RunRecord, result: dict, stage: Path) -> list[str]:
    """What the record and the output give away, against what the attack expects."""
    expect, leaks = attack["expect"], []
    output = "\n".join(
        (record.stdout_head, record.stdout_tail, record.stderr_head, record.stderr_tail)
    )

    def one_of(name: str, seen: object) -> None:
        wanted = expect.get(name)
        wanted = [wanted] if isinstance(wanted, (str, int)) else wanted
        if wanted is not None and seen not in wanted:
            leaks.append(f"{name} {seen}")

    if record.status == "sandbox_error" and "refuses" not in record.error:
        leaks.append(f"sandbox_error: {record.error}")
    elif record.status != "sandbox_error":
        one_of("status", record.status)
        one_of("submission", record.submission.status)
        one_of("exit_code", record.exit_code)
    word = expect.get("stdout_not")
    if word and word in output:
        leaks.append(f'saw "{word}"')
    if expect.get("no_canary"):
        data = output + result.get("submission", "")
        for kind in ("ANSWERS", "MEM", "ENV", "NET", "STDIN"):
            if f"CANARY-{kind}" in data:
                leaks.append(f"leak CANARY-{kind}")
    if record.delta_s > expect.get("delta_max_s", 1e9) + _LATE_S:
        leaks.append(f"delta too large {record.delta_s:.2f}")
    if record.delta_s < expect.get("delta_min_s", 0.0):
        leaks.append(f"delta too small {record.delta_s:.3f}")
    if record.delta_s == expect.get("delta_not"):
        leaks.append("forged delta")
    late = result["call_s"] - record.delta_s - record.setup_s
    if late > expect.get("returns_within_s", 1e9) + _LATE_S:
        leaks.append(f"returned {late:.1f} s late")
    megabytes = len(json.dumps(result["record"])) / 2**20
    if megabytes > expect.get("captured_max_mb", 1e9):
        leaks.append(f"captured {megabytes:.0f} MB")
    megabytes = record.submission.n_bytes / 2**20
    if record.submission.status == "ok" and megabytes > expect.get(
        "submission_max_mb", 1e9
    ):
        leaks.append(f"submission of {megabytes:.0f} MB accepted")
    megabytes = record.disk_bytes / 2**20
    if megabytes > expect.get("disk_max_mb", 1e9):
        leaks.append(f"disk {megabytes:.0f} MB")
    if expect.get("cleanup_ok") and result["cleanup"]:
        leaks.append(f"cleanup fails: {result['cleanup']}")
    if expect.get("next_clean") and "CANARY-PLANTED" in result["next"]:
        found = [x for x in result["next"].splitlines() if "CANARY-PLANTED" in x]
        leaks.append("next run: " + " | ".join(found))
    elif expect.get("next_clean") and "looked" not in result["next"]:
        leaks.append(f"next run did not look: {result['next'][:100]}")
    return leaks
