"""The process that an attack is aimed at, from outside: start, watch and bury it."""

import contextlib
import os
import pty
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from .attack_corpus import Attack


def run_victim(attack: Attack, cage: list[str], stage: Path) -> tuple[str, bool]:
    """Start the victim harness, wait for it; return (how it ended, it hung).

    Args:
        attack: decides about its standard input and its time.
        cage: command before its own. stage: its folder, with spec.json in it.
    """
    ends: list[int] = []
    if attack.get("probe") == "pty":
        keyboard, stdin = pty.openpty()
    else:
        stdin, keyboard = os.pipe()
        os.write(keyboard, b"CANARY-STDIN")
    ends = [keyboard, stdin]
    process = None
    try:
        with open(stage / "victim.log", "wb") as log:
            process = subprocess.Popen(
                [*cage, *_command(stage)],
                stdin=stdin,
                stdout=log,
                stderr=log,
                env=_environment(stage),
                cwd=stage,
                start_new_session=True,
            )
        return _wait(process, attack["timeout_s"] + 25)
    finally:
        if process is not None and process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for fd in ends:
            os.close(fd)


def _command(stage: Path) -> list[str]:
    root = str(Path(__file__).resolve().parent.parent)
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from sandbox_exec import victim; "
    )
    code += f"victim.victim({str(stage / 'spec.json')!r})"
    return [sys.executable, "-c", code]


def _environment(stage: Path) -> dict[str, str]:
    passed = ("SANDBOX_EXEC_BWRAP", "SANDBOX_EXEC_CGROUP")
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(stage / "home"),
        "TMPDIR": str(stage / "tmp"),
        "API_TOKEN": "CANARY-ENV-" + secrets.token_hex(8),
        **{name: os.environ[name] for name in passed if name in os.environ},
    }


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[str, bool]:
    deadline = time.monotonic() + timeout_s
    stopped_since = float("inf")
    while True:
        now = time.monotonic()
        if process.poll() is not None:
            return f"parent exit {process.returncode}", False
        if _is_stopped(process.pid):
            stopped_since = min(stopped_since, now)
            if now - stopped_since > 1:
                return "parent stopped", False
        if now > deadline:
            return "parent hung", True
        time.sleep(0.02)


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def bury(mark: str) -> int:
    """Count, then kill, live processes that carry the mark in their environment."""
    needle = f"A_MARK={mark}".encode()
    seen: set[int] = set()
    quiet = 0
    # The victim's own cleaner needs a moment after a victim that was killed.
    settle = time.monotonic() + 1.0
    while quiet < 3:
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if needle in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
        if time.monotonic() < settle:
            if not found:
                break
            time.sleep(0.1)
            continue
        for pid in found:
            seen.add(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        quiet = 0 if found else quiet + 1
        time.sleep(0.01)
    return len(seen)
