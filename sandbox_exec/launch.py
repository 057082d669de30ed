"""Starting a sandbox up to the gate: everything is ready, nothing of the script ran.

Two ways in, one protocol: through bubblewrap (namespaces), or the gate directly on the
host (Landlock, POSIX). Always plain ``Popen`` without preexec_fn: in a process with
threads (JAX) only async-signal-safe C code runs between fork and exec.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from . import bwrap, landlock, rootless
from .box import Launched, shm_names, wait_readable
from .environment import Environment
from .errors import SandboxError
from .household import HOUSEHOLD
from .inputs import check_inputs
from .janitor import remove_folder
from .limits import Level, Limits
from .protocol import ScriptJob, Slot
from .seccomp import build_filter

GATE = Path(__file__).with_name("gate.py")
_START_TIMEOUT_S = 60.0
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


def rlimits(limits: Limits, level: Level) -> dict[str, int]:
    """Per-process limits that the gate's child sets on itself before the script."""
    values = {
        # 1, not 0: a core handler behind a pipe ignores 0 and honours 1.
        "RLIMIT_CORE": 1 if sys.platform.startswith("linux") else 0,
        "RLIMIT_FSIZE": limits.disk_mb << 20,
        "RLIMIT_NOFILE": limits.nofile,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_RTPRIO": 0,
        "RLIMIT_NICE": 0,
    }
    if level is Level.NAMESPACES:
        # Counted per user and namespace: process 1 is one of them.
        values["RLIMIT_NPROC"] = limits.pids + 1
    if level in (Level.NAMESPACES, Level.LANDLOCK, Level.POSIX):
        # A backstop only: address space and even private data of numerical libraries
        # exceed what they use; the sampler holds the real limit.
        values["RLIMIT_DATA"] = (2 * limits.memory_mb + 256) << 20
    return values


def launch(
    job: ScriptJob,
    slot: Slot,
    env: Environment,
    level: Level,
    *,
    pin: str,
    as_nobody: bool = False,
) -> Launched:
    """Start a sandbox and return it at its gate.

    Args:
        job: what to run. slot: where. env: its interpreter. level: how contained.
        pin: 'cpuset' (the caller's cgroup pins), 'affinity', or '' for no pinning.
        as_nobody: as root, run the script under an unused id (see `rootless`).

    Raises:
        SandboxError: the sandbox could not be set up; the text holds its complaint.
        OSError: descriptors, disk or processes of this machine are used up.
    """
    if job.inputs is not None:
        check_inputs(job.inputs)
    if level >= Level.NAMESPACES:
        return _spawn_bwrap(job, slot, env, level, pin, as_nobody)
    return _spawn_direct(job, slot, env, level, pin)


def _channels() -> tuple[list[socket.socket], list[int]]:
    sockets: list[socket.socket] = []
    pipes: list[int] = []
    try:
        for _ in range(2):
            sockets += socket.socketpair()
        for _ in range(2):
            pipes += os.pipe()
    except OSError:
        for item in sockets:
            item.close()
        for fd in pipes:
            os.close(fd)
        raise
    for fd in (pipes[0], pipes[2]):
        os.set_blocking(fd, False)
    if sys.platform.startswith("linux"):
        import fcntl

        for fd in (pipes[1], pipes[3]):
            with contextlib.suppress(OSError):  # the user's quota of pipe pages
                fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
    return sockets, pipes


def _memfd(data: bytes) -> int:
    fd = os.memfd_create("sandbox_exec", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


def _config(
    job: ScriptJob,
    slot: Slot,
    env: Environment,
    level: Level,
    pin: str,
    *,
    cwd: str,
    home: str,
) -> dict:
    linux = sys.platform.startswith("linux")
    direct = level < Level.NAMESPACES
    script = os.path.join(cwd, "script.py")
    return {
        "argv": [env.python, script, *job.args],
        # With namespaces the slot's GPUs are all there is, and CUDA counts from 0.
        "env": env.variables(job, slot, home=home, renumber_gpus=not direct),
        "cwd": cwd,
        "rlimits": rlimits(job.limits, level),
        "strict_rlimits": not direct,
        "new_session": direct,
        "subreaper": direct and linux,
        "descendants": direct,
        "pdeathsig": direct and linux,
        "become": 0,
        "harness_pid": os.getpid(),
        "pids": job.limits.pids,
        "memory_bytes": job.limits.memory_mb << 20,
        "landlock": None,
    }


def _spawn_bwrap(
    job: ScriptJob,
    slot: Slot,
    env: Environment,
    level: Level,
    pin: str,
    as_nobody: bool,
) -> Launched:
    binary = bwrap.find_bwrap()
    config = _config(job, slot, env, level, pin, cwd=bwrap.WORK, home="/tmp")
    userns_fd = -1
    if as_nobody:
        userns_fd, config["become"] = rootless.namespace_fd(), rootless.INNER_ID
    info_r, info_w = os.pipe()
    try:
        sockets, pipes = _channels()
    except OSError:
        os.close(info_r)
        os.close(info_w)
        raise
    ours, theirs = [sockets[0], sockets[2]], [sockets[1], sockets[3]]
    out_r, out_w, err_r, err_w = pipes
    inherited: list[int] = [info_w]

    def data_fd(data: bytes) -> int:
        inherited.append(_memfd(data))
        return inherited[-1]

    process = None
    try:
        affinity = pin != "affinity"
        filter_fd = data_fd(build_filter(sockets=True, affinity=affinity))
        options = bwrap.sandbox_arguments(
            job,
            slot,
            env,
            gate=GATE,
            data_fd=data_fd,
            info_fd=info_w,
            seccomp_fd=filter_fd,
            userns_fd=userns_fd,
        )
        # Options go through a descriptor: a command line can be read by everyone.
        packed = b"\0".join(os.fsencode(option) for option in options) + b"\0"
        command = [binary, "--args", str(data_fd(packed)), "--", env.python]
        command += ["-I", "-S", "-B", bwrap.GATE]
        command += [str(sock.fileno()) for sock in theirs]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out_w,
            stderr=err_w,
            pass_fds=[
                *inherited,
                *(sock.fileno() for sock in theirs),
                *([userns_fd] if userns_fd >= 0 else []),
            ],
            env={},  # process 1 shows its environment in /proc/1/environ
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        for item in ours:
            item.close()
        for fd in (out_r, err_r, info_r):
            os.close(fd)
        raise
    finally:
        for fd in (*inherited, out_w, err_w):
            os.close(fd)
        for item in theirs:
            item.close()
    launched = Launched(process, ours[0], ours[1], out_r, err_r)
    try:
        deadline = time.monotonic() + _START_TIMEOUT_S
        info = _read_info(info_r, deadline, launched)
        launched.init_pid = int(info["child-pid"])
        launched.init_pidfd = os.pidfd_open(launched.init_pid)
        _handshake(launched, config, deadline)
        launched.child_pid = _only_child(launched.init_pid)
        launched.child_pidfd = os.pidfd_open(launched.child_pid)
        root = f"/proc/{launched.init_pid}/root"
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        launched.work_fd = os.open(root + bwrap.WORK, flags)
        for place in ("/tmp", "/dev/shm"):
            launched.tmpfs_fds.append(os.open(root + place, flags))
        launched.proc_fd = os.open(root + "/proc", flags)
    except BaseException:
        _abandon(launched)
        raise
    finally:
        os.close(info_r)
    return launched


def _abandon(launched: Launched) -> None:
    with contextlib.suppress(SandboxError, OSError):
        launched.kill()
    launched.close()


def _complaint(launched: Launched) -> str:
    """What the starter wrote to standard error: nothing of the script ran yet."""
    with contextlib.suppress(OSError):
        wait_readable(launched.stderr, 1.0)
        text = os.read(launched.stderr, 4096).decode("utf-8", "backslashreplace")
        return text.strip().replace("\n", "; ")
    return ""


def _read_info(fd: int, deadline: float, launched: Launched) -> dict:
    data = b""
    while time.monotonic() < deadline:
        if not wait_readable(fd, max(0.0, deadline - time.monotonic())):
            break
        part = os.read(fd, 4096)
        data += part
        with contextlib.suppress(ValueError):
            return json.loads(data)
        if not part:
            reason = _complaint(launched) or "it ended without a word"
            raise SandboxError(f"bubblewrap could not set up the sandbox: {reason}")
    raise SandboxError("bubblewrap did not start in time")


def _handshake(launched: Launched, config: dict, deadline: float) -> int:
    """Hand the gate its orders and wait for 'ready'; return the child's own pid."""
    launched.ctrl.settimeout(max(0.1, deadline - time.monotonic()))
    try:
        launched.ctrl.sendall(ascii(config).encode() + b"\n")
        launched.ctrl.setblocking(False)
        answer, child = b"", 0
        if wait_readable(launched.go.fileno(), _left_s(deadline)):
            answer = launched.go.recv(4096)
        while answer == b"ready" and not child:
            if not wait_readable(launched.ctrl.fileno(), _left_s(deadline)):
                break
            messages = launched.messages()
            if messages is None:
                break
            for message in messages:
                child = message.get("child", child)
    except OSError as error:
        answer, child = f"x{error}".encode(), 0
    if not answer and time.monotonic() > deadline:
        raise SandboxError("the sandbox did not get ready in time")
    if answer != b"ready" or not child:
        reason = answer[1:].decode("utf-8", "replace") if answer[:1] == b"x" else ""
        reason = _complaint(launched) or reason or "its gate ended without a word"
        raise SandboxError(f"the sandbox could not be set up: {reason}")
    return child


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _only_child(pid: int) -> int:
    """Host pid of the gate's child, the script to be."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return int(text.split()[0])
    except (OSError, IndexError):
        pass
    for entry in os.scandir("/proc"):  # a kernel without CONFIG_PROC_CHILDREN
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(entry.path, "stat").read_text(errors="replace")
                if int(stat.rpartition(")")[2].split()[1]) == pid:
                    return int(entry.name)
    raise SandboxError("the script's process is gone before it started")


def _spawn_direct(
    job: ScriptJob, slot: Slot, env: Environment, level: Level, pin: str
) -> Launched:
    folder = HOUSEHOLD.folder() / HOUSEHOLD.run_name()
    work, home = folder / "work", folder / "tmp"
    try:
        for place in (folder, work, home):
            place.mkdir(mode=0o700)
        (work / "script.py").write_bytes(job.script)
        if job.inputs is None:
            (work / "input").mkdir(mode=0o500)
        else:
            (work / "input").symlink_to(job.inputs.resolve())
        config = _config(job, slot, env, level, pin, cwd=str(work), home=str(home))
        if level is Level.LANDLOCK:
            config["landlock"] = landlock.rules(
                env, work=work, inputs=job.inputs, pin=bool(pin)
            )
            # Landlock is about paths: a second folder needs its own rule.
            config["landlock"]["paths"].append(
                (str(home), dict(config["landlock"]["paths"])[str(work)])
            )
        sockets, pipes = _channels()
    except BaseException:
        remove_folder(folder)
        raise
    ours, theirs = [sockets[0], sockets[2]], [sockets[1], sockets[3]]
    out_r, out_w, err_r, err_w = pipes
    shm_before = shm_names()
    try:
        command = [env.python, "-I", "-S", "-B", str(GATE)]
        process = subprocess.Popen(
            command + [str(sock.fileno()) for sock in theirs],
            stdin=subprocess.DEVNULL,
            stdout=out_w,
            stderr=err_w,
            pass_fds=[sock.fileno() for sock in theirs],
            env={},
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        for item in ours:
            item.close()
        os.close(out_r)
        os.close(err_r)
        remove_folder(folder)
        raise
    finally:
        os.close(out_w)
        os.close(err_w)
        for item in theirs:
            item.close()
    launched = Launched(process, ours[0], ours[1], out_r, err_r, folder=folder)
    launched.shm_before = shm_before
    try:
        deadline = time.monotonic() + _START_TIMEOUT_S
        child = _handshake(launched, config, deadline)
        launched.init_pid, launched.child_pid = process.pid, child
        if hasattr(os, "pidfd_open"):
            launched.child_pidfd = os.pidfd_open(child)
        launched.work_fd = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except BaseException:
        _abandon(launched)
        raise
    return launched
