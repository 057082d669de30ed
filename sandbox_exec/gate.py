"""Supervisor at the script's side: runs as process 1 of the sandbox, alone or first.

Started as ``python -I -S gate.py CTRL_FD GO_FD``; stands alone (standard library only,
no import of this package) because inside the sandbox this file is all there is; what
only levels without namespaces need is in ``gate_host`` beside it.

It forks the child that will become the script, *before* anything is timed. The child
applies its limits, says 'ready' and blocks; 'go' turns it into the script by exec, and
a closed channel ends it without running a line. This process then reaps orphans,
reports how the main process ended, and waits to be killed. Channels are sockets: unlike
pipes they cannot be reopened through /proc/<pid>/fd.
"""

# ruff: noqa: SIM105  (importing contextlib would cost more than all else here)

import os
import select
import sys

TYPE_CHECKING = False  # as in `typing`, which takes too long to import
if TYPE_CHECKING:
    import ctypes
    import signal as _signal
    from _socket import socket
    from types import ModuleType
    from typing import Any, TypedDict

    class Config(TypedDict):
        """Orders of one run, from the harness."""

        argv: list[str]
        env: dict[str, str]
        cwd: str
        rlimits: dict[str, int]
        strict_rlimits: bool
        new_session: bool
        subreaper: bool
        descendants: bool
        pdeathsig: bool
        become: int
        harness_pid: int
        pids: int
        memory_bytes: int
        landlock: "dict[str, Any] | None"
else:
    import _signal


def main() -> None:
    """Run one script; see the module's text for the sequence."""
    ctrl_fd, go_fd = int(sys.argv[1]), int(sys.argv[2])
    import _socket  # the C module alone: half the start-up time of `socket`

    _close_others({0, 1, 2, ctrl_fd, go_fd})
    ctrl = _socket.socket(fileno=ctrl_fd)
    go = _socket.socket(fileno=go_fd)
    config = _read_config(ctrl)
    if config["become"]:
        _become_nobody(config["become"], config["cwd"])
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_r, False)
    os.set_blocking(wake_w, False)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    if config["subreaper"]:
        _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: daemons come back to us
    if config["descendants"]:
        _host("gate_host")  # once, for both sides of the fork
    ours, theirs = _socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _signal.set_wakeup_fd(-1)
        try:
            ours.close()
            _become_script(config, go, theirs, {ctrl_fd, wake_r, wake_w})
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            try:
                go.send(("x" + text).encode("utf-8", "replace")[:4000])
            except OSError:
                pass
        os._exit(125)
    go.close()
    theirs.close()
    if config["landlock"] is not None:
        _host("gate_sockets").start(ours, config["landlock"])
    _tell(ctrl, {"child": pid})
    code = _watch(ctrl, wake_r, pid, config)
    os._exit(code)


def _close_others(keep: set[int]) -> None:
    """Close what whoever started us has left open: a namespace's descriptor is a way
    into it, and scripts inherit whatever is inheritable here."""
    linux = sys.platform.startswith("linux")
    for name in os.listdir("/proc/self/fd" if linux else "/dev/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass  # that of the listing itself


def _become_nobody(uid: int, folder: str) -> None:
    """Leave root's id, and with it every capability, for good."""
    os.chown(folder, uid, -1)
    os.setresuid(uid, uid, uid)
    import struct

    # Inheritable ones survive a change of id; dying with one's parent does not.
    _libc().capset(struct.pack("=II", 0x20080522, 0), bytes(24))
    _prctl(1, 9)


def _read_config(ctrl: "socket") -> "Config":
    """One line; a closed channel means that nobody wants us any more."""
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        parts.append(ctrl.recv(1 << 16))
        if not parts[-1]:
            os._exit(3)
    # A Python literal from our own harness: `json` would double the start-up time.
    config: Config = eval(b"".join(parts), {"__builtins__": {}})
    return config


def _tell(ctrl: "socket", message: "dict[str, int | float | str]") -> None:
    # JSON by hand: keys are plain words, values are numbers or plain words.
    pairs = (
        f'"{key}": ' + (f'"{value}"' if isinstance(value, str) else repr(value))
        for key, value in message.items()
    )
    try:
        ctrl.sendall(("{" + ", ".join(pairs) + "}\n").encode())
    except OSError:
        pass  # nobody listens: the end of file on the same channel ends us


def _watch(ctrl: "socket", wake_r: int, main_pid: int, config: "Config") -> int:
    """Reap until told to stop; report the main process as soon as it ends."""
    poll = select.poll()
    poll.register(wake_r, select.POLLIN)
    poll.register(ctrl.fileno(), select.POLLIN)
    police = None
    if config["descendants"]:
        police = _host("gate_host").Police(config["memory_bytes"], config["pids"])
        parent = _pidfd(config["harness_pid"])
        if parent >= 0:  # readable when the harness dies
            poll.register(parent, select.POLLIN)
    while True:
        events = poll.poll(10 if police else None)
        if police:
            over = police.look()
            if over:
                _tell(ctrl, {"over": over})
                police.kill()
        for fd, _ in events:
            if fd != wake_r:  # 'kill', end of file, or the parent is gone
                if police:
                    _host("gate_host").kill_descendants()
                return 0
            try:
                os.read(wake_r, 4096)
            except BlockingIOError:
                pass
        for pid, status in _reaped():
            if pid == main_pid:
                usage = _resource().getrusage(_resource().RUSAGE_CHILDREN)
                report = {
                    "status": status,
                    "cpu_s": usage.ru_utime + usage.ru_stime,
                    "maxrss_kb": usage.ru_maxrss,
                    "pids_peak": police.pids_peak if police else 0,
                    "memory_peak": police.memory_peak if police else 0,
                }
                _tell(ctrl, report)


def _reaped() -> "list[tuple[int, int]]":
    """(pid, wait status) of children that have ended."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        found.append((pid, status))


def _host(name: str) -> "ModuleType":
    """A part for levels without namespaces, from a file beside this one."""
    if name not in sys.modules:
        folder = os.path.dirname(os.path.abspath(__file__))
        sys.path.insert(0, folder)
        try:
            __import__(name)
        finally:
            sys.path.remove(folder)
    return sys.modules[name]


def _resource() -> "ModuleType":
    import resource

    return resource


def _pidfd(pid: int) -> int:
    """A descriptor that turns readable when a process dies, or -1."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _become_script(
    config: "Config", go: "socket", channel: "socket", close: set[int]
) -> None:
    for fd in close:
        os.close(fd)
    if config["new_session"]:
        os.setsid()
    os.chdir(config["cwd"])
    os.umask(0o022)
    _limit(config)
    for name in ("SIGPIPE", "SIGXFSZ", "SIGCHLD", "SIGINT", "SIGHUP", "SIGTERM"):
        number = getattr(_signal, name, None)
        if number is not None:
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    if config["pdeathsig"]:
        _prctl(1, 9)
    if config["landlock"] is not None:
        _host("gate_host").restrict(config["landlock"], channel)
    channel.close()
    argv, env = config["argv"], config["env"]
    # Whoever starts us made it inheritable: the script must not speak on it.
    os.set_inheritable(go.fileno(), False)
    go.send(b"ready")
    if go.recv(16) != b"go":
        os._exit(125)
    os.execve(argv[0], argv, env)


def _limit(config: "Config") -> None:
    """Set the script's own limits."""
    resource = _resource()
    for name, value in config["rlimits"].items():
        kind = getattr(resource, name, None)
        if kind is not None:
            hard = resource.getrlimit(kind)[1]
            if hard != resource.RLIM_INFINITY:
                value = min(value, hard)
            try:
                resource.setrlimit(kind, (value, value))
            except (OSError, ValueError):
                if config["strict_rlimits"]:
                    raise


def _libc() -> "ctypes.CDLL":
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    libc = _libc()
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


if __name__ == "__main__":
    main()
