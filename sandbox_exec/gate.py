"""Supervisor at the script's side: runs as process 1 of the sandbox, alone or first.

Started as ``python -I -S gate.py CTRL_FD GO_FD``; stands alone (standard library only,
no import of this package) because inside the sandbox this file is all there is.

It forks the child that will become the script, *before* anything is timed. The child
applies its limits, says 'ready' and blocks; 'go' turns it into the script by exec, and
a closed channel ends it without running a line. This process then reaps orphans,
reports how the main process ended, and waits to be killed. Channels are sockets: unlike
pipes they cannot be reopened through /proc/<pid>/fd.
"""

# ruff: noqa: SIM105  (importing contextlib would cost more than all else here)

import _signal
import os
import select
import sys


def main() -> None:
    """Run one script; see the module's text for the sequence."""
    ctrl_fd, go_fd = int(sys.argv[1]), int(sys.argv[2])
    import _socket  # the C module alone: half the start-up time of `socket`

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
    pid = os.fork()
    if pid == 0:
        _signal.set_wakeup_fd(-1)
        try:
            _become_script(config, go, {ctrl_fd, wake_r, wake_w})
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            try:
                go.send(("x" + text).encode("utf-8", "replace")[:4000])
            except OSError:
                pass
        os._exit(125)
    go.close()
    _tell(ctrl, {"child": pid})
    code = _watch(ctrl, wake_r, pid, config)
    os._exit(code)


def _become_nobody(uid: int, folder: str) -> None:
    """Leave root's id, and with it every capability, for good."""
    os.chown(folder, uid, -1)
    os.setresuid(uid, uid, uid)
    import struct

    # Inheritable ones survive a change of id; dying with one's parent does not.
    _libc().capset(struct.pack("=II", 0x20080522, 0), bytes(24))
    _prctl(1, 9)


def _read_config(ctrl) -> dict:
    """One line; a closed channel means that nobody wants us any more."""
    parts = []
    while not parts or not parts[-1].endswith(b"\n"):
        parts.append(ctrl.recv(1 << 16))
        if not parts[-1]:
            os._exit(3)
    # A Python literal from our own harness: `json` would double the start-up time.
    return eval(b"".join(parts), {"__builtins__": {}})


def _tell(ctrl, message: dict) -> None:
    # JSON by hand: keys are plain words, values are numbers or plain words.
    pairs = (
        f'"{key}": ' + (f'"{value}"' if isinstance(value, str) else repr(value))
        for key, value in message.items()
    )
    try:
        ctrl.sendall(("{" + ", ".join(pairs) + "}\n").encode())
    except OSError:
        pass  # nobody listens: the end of file on the same channel ends us


def _watch(ctrl, wake_r: int, main_pid: int, config: dict) -> int:
    """Reap until told to stop; report the main process as soon as it ends."""
    poll = select.poll()
    poll.register(wake_r, select.POLLIN)
    poll.register(ctrl.fileno(), select.POLLIN)
    parent = _parent_watch(config)
    if parent >= 0:
        poll.register(parent, select.POLLIN)
    peak = 0
    while True:
        tick = 10 if config["descendants"] else None
        events = poll.poll(tick)
        if config["descendants"]:
            peak = max(peak, _police(config, ctrl))
        for fd, _ in events:
            if fd == wake_r:
                try:
                    os.read(wake_r, 4096)
                except BlockingIOError:
                    pass
            else:  # 'kill', end of file, or the parent is gone
                if config["descendants"]:
                    _kill_descendants()
                return 0
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == main_pid:
                usage = _resource().getrusage(_resource().RUSAGE_CHILDREN)
                report = {
                    "status": status,
                    "cpu_s": usage.ru_utime + usage.ru_stime,
                    "maxrss_kb": usage.ru_maxrss,
                    "pids_peak": peak,
                    "memory_peak": config.get("peak_memory", 0),
                }
                _tell(ctrl, report)


def _resource():
    import resource

    return resource


def _parent_watch(config: dict) -> int:
    """A descriptor that turns readable when the harness dies, or -1."""
    if config["descendants"] and hasattr(os, "pidfd_open"):
        try:
            return os.pidfd_open(config["harness_pid"])
        except OSError:
            return -1
    return -1


def _become_script(config: dict, go, close: set[int]) -> None:
    for fd in close:
        os.close(fd)
    if config["new_session"]:
        os.setsid()
    os.chdir(config["cwd"])
    os.umask(0o022)
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
    for name in ("SIGPIPE", "SIGXFSZ", "SIGCHLD", "SIGINT", "SIGHUP", "SIGTERM"):
        number = getattr(_signal, name, None)
        if number is not None:
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    if config["pdeathsig"]:
        _prctl(1, 9)
    if config["landlock"] is not None:
        _restrict(config["landlock"])
    argv, env = config["argv"], config["env"]
    # Whoever starts us made it inheritable: the script must not speak on it.
    os.set_inheritable(go.fileno(), False)
    go.send(b"ready")
    if go.recv(16) != b"go":
        os._exit(125)
    os.execve(argv[0], argv, env)


# --- Below: only for levels without namespaces, where this file runs on the host. ---


def _libc():
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int, extra: object = None) -> None:
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    libc = _libc()
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), extra or zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def _restrict(rules: dict) -> None:
    """Drop capabilities, enter a Landlock domain, install the seccomp filter.

    System calls 444 to 446, access bits: Linux ``uapi/linux/landlock.h``.
    """
    import ctypes
    import struct

    libc = _libc()
    libc.syscall.restype = ctypes.c_long

    def check(result: int, what: str) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")
        return result

    for capability in range(64):
        if libc.prctl(24, ctypes.c_ulong(capability), 0, 0, 0) != 0:  # CAPBSET_DROP
            break  # not root (nothing to drop) or past the last capability
    header = struct.pack("=II", 0x20080522, 0)
    check(libc.capset(header, bytes(24)), "capset")
    _prctl(38, 1)  # PR_SET_NO_NEW_PRIVS
    attr = struct.pack("=QQQ", rules["fs"], rules["net"], rules["scope"])
    attr = attr[: rules["attr_size"]]
    ruleset = check(
        libc.syscall(444, attr, ctypes.c_size_t(len(attr)), 0), "landlock_create"
    )
    for path, access in rules["paths"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rule = struct.pack("=Qi", access, fd)
        check(libc.syscall(445, ruleset, 1, rule, 0), f"landlock_add_rule {path}")
        os.close(fd)
    check(libc.syscall(446, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)
    code = bytes.fromhex(rules["seccomp"])
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(program, len(program))
    _prctl(22, 2, ctypes.c_void_p(ctypes.addressof(holder)))  # PR_SET_SECCOMP, FILTER


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children") as stream:
                found += map(int, stream.read().split())
        except OSError:
            pass  # this thread has just ended; the others' children still count
    return found


def _descendants() -> list[int]:
    """Every live process below this one, nearest first."""
    seen: list[int] = []
    queue = _children(os.getpid())
    while queue:
        pid = queue.pop()
        seen.append(pid)
        queue += _children(pid)
    return seen


def _kill_descendants() -> None:
    """SIGKILL until none is left: orphans come back to us as their subreaper."""
    for _ in range(1000):
        pids = _descendants()
        if not pids:
            break
        for pid in pids:
            try:
                os.kill(pid, _signal.SIGKILL)
            except OSError:
                pass
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        select.select([], [], [], 0.001)


def _memory_of(pid: int, close: bool) -> int:
    """Bytes of a process; pages that others share count in parts where `close`."""
    try:
        tasks = [task for task in os.listdir(f"/proc/{pid}/task") if task != str(pid)]
    except OSError:
        return 0
    # A first thread that has ended has no memory, though others go on with all of it.
    for place in [str(pid), *(f"{pid}/task/{task}" for task in tasks)]:
        # RssShmem: shared anonymous memory, which is nobody's private memory.
        for file, fields in (
            ("smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")),
            ("status", ("RssAnon:", "RssShmem:")),
        ):
            if file == "smaps_rollup" and not close:
                continue
            try:
                with open(f"/proc/{place}/{file}") as stream:
                    sizes = [x.split()[1] for x in stream if x.startswith(fields)]
            except (OSError, IndexError):
                continue
            if sizes:
                return sum(map(int, sizes)) << 10
    return 0


def _police(config: dict, ctrl) -> int:
    """Hold the process and memory limits by sampling; returns the thread count."""
    pids = _descendants()
    memory = threads = 0
    for pid in pids:
        memory += _memory_of(pid, close=False)
        try:
            threads += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            pass
    if memory > config["memory_bytes"]:
        # Pages shared after a fork were counted once per process: look closely.
        memory = sum(_memory_of(pid, close=True) for pid in pids)
    over = None
    if threads > config["pids"]:
        over = "pids_limit"
    elif memory > config["memory_bytes"]:
        over = "oom"
    if over and not config.get("reported"):
        config["reported"] = True
        _tell(ctrl, {"over": over})
        for pid in pids:
            try:
                os.kill(pid, _signal.SIGKILL)
            except OSError:
                pass
    config["peak_memory"] = max(config.get("peak_memory", 0), memory)
    return threads


if __name__ == "__main__":
    main()
