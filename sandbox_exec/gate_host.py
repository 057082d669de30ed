"""The gate's part for levels without namespaces, where it runs on the host.

Stands alone, as the gate does: Landlock and seccomp before the script starts, then a
watch over its descendants, whom no namespace holds together.
"""

# ruff: noqa: SIM105  (importing contextlib would cost more than all else here)

import ctypes
import os
import select
import signal
import struct

TYPE_CHECKING = False  # as in `typing`, which takes too long to import
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any

_CAPBSET_DROP, _SET_NO_NEW_PRIVS = 24, 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_SOL_SOCKET, _SCM_RIGHTS = 1, 1
_LANDLOCK_ABI1, _MAKE_SOCK = (1 << 13) - 1, 1 << 9
_ZERO = ctypes.c_ulong(0)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def restrict(rules: "dict[str, Any]", channel: "socket") -> None:
    """Drop capabilities, enter a Landlock domain, install the seccomp filter.

    Args:
        rules: see `landlock.rules`.
        channel: takes the descriptor by which `gate_sockets` is asked; it is closed.

    System calls 444 to 446, access bits: Linux ``uapi/linux/landlock.h``.
    """
    libc = _libc()
    for capability in range(64):
        if libc.prctl(_CAPBSET_DROP, ctypes.c_ulong(capability), _ZERO, _ZERO, _ZERO):
            break  # not root (nothing to drop) or past the last capability
    header = struct.pack("=II", 0x20080522, 0)
    _check(libc.capset(header, bytes(24)), "capset")
    _landlock(libc, rules)
    code = bytes.fromhex(rules["seccomp"])
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(program, len(program))
    install, place = (
        rules["calls"]["seccomp"],
        ctypes.c_void_p(ctypes.addressof(holder)),
    )
    mode, flags = ctypes.c_ulong(_SET_MODE_FILTER), ctypes.c_ulong(_NEW_LISTENER)
    listener = libc.syscall(install, mode, flags, place)
    if listener < 0:
        # Somebody outside listens already, of whom there can be one: without our
        # broker the calls that need him fail by themselves.
        _check(libc.syscall(install, mode, _ZERO, place), "seccomp")
    else:
        passed = struct.pack("=i", listener)
        channel.sendmsg([b"x"], [(_SOL_SOCKET, _SCM_RIGHTS, passed)])
        os.close(listener)
    channel.close()


def confine(folders: list[str]) -> None:
    """Let the calling thread make unix sockets in these folders and write nothing else.

    Raises:
        OSError: the kernel does not do so.
    """
    rules = {"fs": _LANDLOCK_ABI1, "net": 0, "scope": 0, "attr_size": 8}
    _landlock(_libc(), {**rules, "paths": [(path, _MAKE_SOCK) for path in folders]})


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _landlock(libc: ctypes.CDLL, rules: "dict[str, Any]") -> None:
    one = ctypes.c_ulong(1)
    _check(libc.prctl(_SET_NO_NEW_PRIVS, one, _ZERO, _ZERO, _ZERO), "no_new_privs")
    attr = struct.pack("=QQQ", rules["fs"], rules["net"], rules["scope"])
    attr = attr[: rules["attr_size"]]
    size, zero = ctypes.c_size_t(len(attr)), ctypes.c_uint(0)
    ruleset = _check(libc.syscall(444, attr, size, zero), "landlock_create")
    for path, access in rules["paths"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rule = struct.pack("=Qi", access, fd)
        done = libc.syscall(445, ruleset, 1, rule, zero)
        _check(done, f"landlock_add_rule {path}")
        os.close(fd)
    _check(libc.syscall(446, ruleset, zero), "landlock_restrict_self")
    os.close(ruleset)


class Police:
    """Holds the process and memory limits of our descendants by sampling.

    Attributes:
        memory_peak: bytes, the most seen. pids_peak: threads, the most seen.
    """

    def __init__(self, memory_bytes: int, pids: int) -> None:
        self._memory_bytes = memory_bytes
        self._pids = pids
        self._reported = False
        self._seen: list[int] = []
        self.memory_peak = 0
        self.pids_peak = 0

    def look(self) -> str:
        """Sample once; the reason to stop the script, the first time there is one."""
        self._seen = pids = descendants()
        memory = threads = 0
        for pid in pids:
            memory += _memory_of(pid, close=False)
            try:
                threads += len(os.listdir(f"/proc/{pid}/task"))
            except OSError:
                pass
        if memory > self._memory_bytes:
            # Pages shared after a fork were counted once per process: look closely.
            memory = sum(_memory_of(pid, close=True) for pid in pids)
        self.memory_peak = max(self.memory_peak, memory)
        self.pids_peak = max(self.pids_peak, threads)
        over = ""
        if threads > self._pids:
            over = "pids_limit"
        elif memory > self._memory_bytes:
            over = "oom"
        if self._reported:
            return ""
        self._reported = bool(over)
        return over

    def kill(self) -> None:
        """SIGKILL everyone of the last sample."""
        for pid in self._seen:
            _kill(pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


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


def descendants() -> list[int]:
    """Every live process below this one, nearest first."""
    seen: list[int] = []
    queue = _children(os.getpid())
    while queue:
        pid = queue.pop()
        seen.append(pid)
        queue += _children(pid)
    return seen


def kill_descendants() -> None:
    """SIGKILL until none is left: orphans come back to us as their subreaper."""
    for _ in range(1000):
        pids = descendants()
        if not pids:
            break
        for pid in pids:
            _kill(pid)
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
