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

from .bwrap import find_bwrap
from .limits import Level


def run_victim(attack: dict, level: str, stage: Path) -> tuple[str, bool]:
    """Start the victim harness, wait for it; return (how it ended, it hung)."""
    root = str(Path(__file__).resolve().parent.parent)
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from sandbox_exec import victim; "
    )
    code += f"victim.victim({str(stage / 'spec.json')!r})"
    command = [sys.executable, "-c", code]
    bare = level == "naive" or Level.parse(level) < Level.NAMESPACES
    if bare and "pid_namespace" in attack.get("needs", ()):
        # Aimed at every process, or at process 1: never outside a namespace of its own.
        cage = [
            find_bwrap(),
            "--dev-bind",
            "/",
            "/",
            "--unshare-pid",
            "--proc",
            "/proc",
        ]
        command = [*cage, "--die-with-parent", "--", *command]
    env = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(stage / "home"),
        "TMPDIR": str(stage / "tmp"),
        "API_TOKEN": "CANARY-ENV-" + secrets.token_hex(8),
        **{
            name: os.environ[name]
            for name in ("SANDBOX_EXEC_BWRAP", "SANDBOX_EXEC_CGROUP")
            if name in os.environ
        },
    }
    ends: list[int] = []
    if attack.get("probe") == "pty":
        keyboard, stdin = pty.openpty()
        ends = [keyboard, stdin]
    else:
        stdin, keyboard = os.pipe()
        os.write(keyboard, b"CANARY-STDIN")
        ends = [keyboard, stdin]
    log = open(stage / "victim.log", "wb")  # noqa: SIM115
    try:
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=log,
            stderr=log,
            env=env,
            cwd=stage,
            start_new_session=True,
        )
        deadline = time.monotonic() + attack["timeout_s"] + 25
        stopped_since = None
        while True:
            if process.poll() is not None:
                return f"parent exit {process.returncode}", False
            stopped = _is_stopped(process.pid)
            if stopped and stopped_since is None:
                stopped_since = time.monotonic()
            if stopped and time.monotonic() - stopped_since > 1:
                return "parent stopped", False
            if time.monotonic() > deadline:
                return "parent hung", True
            time.sleep(0.02)
    finally:
        log.close()
        if "process" in locals() and process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for fd in ends:
            os.close(fd)


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
