"""Starting a sandbox up to the gate: everything is ready, nothing of the script ran.

Two ways in, one protocol: through bubblewrap (namespaces), or the gate directly on the
host (Landlock, POSIX). Always plain ``Popen`` without preexec_fn: in a process with
threads (JAX) only async-signal-safe C code runs between fork and exec.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from . import bwrap, landlock, rootless
from .box import Launched
from .channels import Channels, memfd
from .environment import Environment
from .handshake import START_TIMEOUT_S, abandon, handshake, only_child, read_info
from .household import HOUSEHOLD
from .inputs import check_inputs
from .janitor import remove_folder
from .limits import Level, Limits
from .protocol import ScriptJob, Slot
from .seccomp import build_filter
from .shm import SHM

if TYPE_CHECKING:
    from .gate import Config

GATE = Path(__file__).with_name("gate.py")
_START = Path(__file__).with_name("script_start.py")


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


def _config(
    job: ScriptJob,
    slot: Slot,
    env: Environment,
    level: Level,
    pin: str,
    *,
    cwd: str,
    home: str,
    start: str,
) -> "Config":
    linux = sys.platform.startswith("linux")
    direct = level < Level.NAMESPACES
    script = os.path.join(cwd, "script.py")
    return {
        "argv": [env.python, script, *job.args],
        # With namespaces the slot's GPUs are all there is, and CUDA counts from 0.
        "env": env.variables(
            job, slot, home=home, start=start, renumber_gpus=not direct
        ),
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


def _start(command: list[str], channels: Channels, fds: Iterable[int] = ()) -> Launched:
    """Start the sandbox's first process; their ends are closed here in any case."""
    try:
        process = subprocess.Popen(
            [*command, *(str(sock.fileno()) for sock in channels.theirs)],
            stdin=subprocess.DEVNULL,
            stdout=channels.writes[0],
            stderr=channels.writes[1],
            pass_fds=[*fds, *(sock.fileno() for sock in channels.theirs)],
            env={},  # process 1 shows its environment in /proc/1/environ
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        channels.close_ours()
        raise
    finally:
        channels.close_theirs()
    (ctrl, go), (out, err) = channels.ours, channels.reads
    return Launched(process, ctrl, go, out, err)


def _spawn_bwrap(
    job: ScriptJob,
    slot: Slot,
    env: Environment,
    level: Level,
    pin: str,
    as_nobody: bool,
) -> Launched:
    config = _config(
        job, slot, env, level, pin, cwd=bwrap.WORK, home="/tmp", start=bwrap.START
    )
    userns_fd = -1
    if as_nobody:
        userns_fd, config["become"] = rootless.namespace_fd(), rootless.INNER_ID
    info_r, info_w = os.pipe()
    try:
        launched = _start_bwrap(job, slot, env, pin, info_w, userns_fd)
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            info = read_info(info_r, deadline, launched)
            launched.init_pid = int(info["child-pid"])
            launched.init_pidfd = os.pidfd_open(launched.init_pid)
            handshake(launched, config, deadline)
            launched.child_pid = only_child(launched.init_pid)
            launched.child_pidfd = os.pidfd_open(launched.child_pid)
            _open_folders(launched)
        except BaseException:
            abandon(launched)
            raise
    finally:
        os.close(info_r)
    return launched


def _start_bwrap(
    job: ScriptJob,
    slot: Slot,
    env: Environment,
    pin: str,
    info_fd: int,
    userns_fd: int,
) -> Launched:
    """Start bubblewrap; closes `info_fd` and whatever else it hands over."""
    inherited: list[int] = [info_fd]

    def data_fd(data: bytes) -> int:
        inherited.append(memfd(data))
        return inherited[-1]

    try:
        binary = bwrap.find_bwrap()
        options = bwrap.sandbox_arguments(
            job,
            slot,
            env,
            gate=GATE,
            start=_START,
            data_fd=data_fd,
            info_fd=info_fd,
            seccomp_fd=data_fd(build_filter(sockets=True, affinity=pin != "affinity")),
            userns_fd=userns_fd,
        )
        # Options go through a descriptor: a command line can be read by everyone.
        packed = b"\0".join(os.fsencode(option) for option in options) + b"\0"
        command = [binary, "--args", str(data_fd(packed)), "--", env.python]
        command += ["-I", "-S", "-B", bwrap.GATE]
        fds = [*inherited, *([userns_fd] if userns_fd >= 0 else [])]
        return _start(command, Channels.open(), fds)
    finally:
        for fd in inherited:
            os.close(fd)


def _open_folders(launched: Launched) -> None:
    """The sandbox's own folders, through which it is watched and emptied."""
    root = f"/proc/{launched.init_pid}/root"
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    launched.work_fd = os.open(root + bwrap.WORK, flags)
    for place in ("/tmp", "/dev/shm"):
        launched.tmpfs_fds.append(os.open(root + place, flags))
    launched.proc_fd = os.open(root + "/proc", flags)


def _spawn_direct(
    job: ScriptJob, slot: Slot, env: Environment, level: Level, pin: str
) -> Launched:
    folder = HOUSEHOLD.folder() / HOUSEHOLD.run_name()
    work, home, start = folder / "work", folder / "tmp", folder / "start"
    try:
        for place in (folder, work, home, start):
            place.mkdir(mode=0o700)
        (work / "script.py").write_bytes(job.script)
        (start / "sitecustomize.py").write_bytes(_START.read_bytes())
        if job.inputs is None:
            (work / "input").mkdir(mode=0o500)
        else:
            (work / "input").symlink_to(job.inputs.resolve())
        config = _config(
            job, slot, env, level, pin, cwd=str(work), home=str(home), start=str(start)
        )
        if level is Level.LANDLOCK:
            landlock.hide_modules(start)
            config["landlock"] = landlock.rules(
                env,
                own=(work, home),
                inputs=job.inputs,
                cores=slot.cores if pin else (),
                start=start,
            )
        channels = Channels.open()
    except BaseException:
        remove_folder(folder)
        raise
    shm = SHM.begin()
    try:
        launched = _start([env.python, "-I", "-S", "-B", str(GATE)], channels)
    except BaseException:
        SHM.end(shm)
        remove_folder(folder)
        raise
    launched.folder, launched.shm = folder, shm
    try:
        child = handshake(launched, config, time.monotonic() + START_TIMEOUT_S)
        launched.init_pid, launched.child_pid = launched.process.pid, child
        if hasattr(os, "pidfd_open"):
            launched.child_pidfd = os.pidfd_open(child)
        launched.work_fd = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except BaseException:
        abandon(launched)
        raise
    return launched
