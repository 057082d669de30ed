"""A seccomp filter assembled here: no libseccomp, no compiler, two architectures.

The filter is a deny list with an upper edge: a denied call returns an error the caller
can handle, calls newer than this table return ENOSYS, and a foreign architecture (int
0x80 on x86-64, the x32 numbers) is killed or refused. Everything that numerical Python
uses stays allowed. Instruction set: Linux ``Documentation/networking/filter.rst``;
return values and data layout: ``include/uapi/linux/seccomp.h``.
"""

import errno
import platform
import struct
from collections.abc import Iterable

from .seccomp_numbers import NUMBERS

_LD_W_ABS = 0x20
_JEQ_K = 0x15
_JGT_K = 0x25
_JSET_K = 0x45
_AND_K = 0x54
_RET_K = 0x06

_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_ALLOW = 0x7FFF0000
_ASK = 0x7FC00000

_NR, _ARCH, _ARGS = 0, 4, 16

_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NEWEST = 462  # mseal, Linux 6.10; later calls answer ENOSYS as on an older kernel

# Absent rather than forbidden: callers probe for these and have a fallback.
_ABSENT = {
    "clone3",  # its flags lie in memory, out of a filter's sight; glibc falls back
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "listmount",
    "memfd_create",  # memory that no tmpfs bounds and no file system shows
    "memfd_secret",
    "mq_open",  # queues and System V objects outlive their maker
    "msgget",
    "semget",
    "shmget",
    "statmount",
}
_BY_ARGUMENT = {"clone", "ioctl", "personality", "prlimit64", "socket"}
#: Calls that a supervisor outside answers, where no network namespace is.
ASKED = ("bind", "connect", "listen")
_SENDING = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}  # which argument holds the flags
_NOT_REFUSED = {*_BY_ARGUMENT, *ASKED, *_SENDING, "seccomp", "setsockopt"}
_OPTIONAL = {"sched_setaffinity"}
# The first arguments with which a call touches its caller and nobody else.
_OF_OTHERS: dict[str, tuple[int, ...]] = {
    "ioprio_set": (1, 0),  # IOPRIO_WHO_PROCESS
    "sched_setattr": (0,),
    "sched_setparam": (0,),
    "sched_setscheduler": (0,),
    "setpriority": (0, 0),  # PRIO_PROCESS
}

# CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_CLONE_NEW = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000
_CLONE_NEW |= 0x10000000 | 0x20000000 | 0x40000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_DGRAM = 1, 2
_IPPROTO_TCP, _MSG_FASTOPEN, _SOL_SOCKET, _SO_REUSEPORT = 6, 0x20000000, 1, 15


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _fail(number: int) -> bytes:
    return _op(_RET_K, _ERRNO | number)


def _when(nr: int, body: list[bytes]) -> list[bytes]:
    """`body` runs only for call `nr`; it must end in a return."""
    return [_op(_JEQ_K, nr, 0, len(body)), *body]


def supported() -> bool:
    """Whether this machine's architecture has a table."""
    return platform.machine() in _ARCHES and struct.pack("=H", 1)[0] == 1


def build_filter(*, sockets: bool, affinity: bool, machine: str | None = None) -> bytes:
    """Return the BPF program as bytes (for ``bwrap --seccomp`` or prctl).

    Args:
        sockets: allow AF_UNIX, AF_INET and AF_INET6 stream and datagram sockets, and
            other processes' priorities to be set; right only behind a network and a
            pid namespace. Else stream sockets alone, whose addresses are decided
            elsewhere (`ASKED`). Socket pairs are always allowed.
        affinity: allow sched_setaffinity; right only inside a cpuset.
        machine: architecture; the running one by default.

    Raises:
        ValueError: no table for this architecture.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        raise ValueError(f"no seccomp table for {machine!r}: x86_64 and aarch64 only")
    column, audit_arch = _ARCHES[machine]
    code = [
        _op(_LD_W_ABS, _ARCH),
        _op(_JEQ_K, audit_arch, 1, 0),
        _op(_RET_K, _KILL_PROCESS),
        _op(_LD_W_ABS, _NR),
        _op(_JGT_K, _NEWEST, 0, 1),
        _fail(errno.ENOSYS),
    ]
    bodies = _refused(affinity) | _by_argument()
    bodies |= _sockets_behind_a_network_namespace() if sockets else _on_the_host()
    for name, body in bodies.items():
        number = NUMBERS[name][column]
        if number is not None:
            code += _when(number, body)
    return b"".join([*code, _op(_RET_K, _ALLOW)])


def _arg(index: int) -> bytes:
    # Low word: every argument tested here is a 32-bit value to the kernel.
    return _op(_LD_W_ABS, _ARGS + 8 * index)


_YES, _NO = _op(_RET_K, _ALLOW), _fail(errno.EPERM)


def _refused(affinity: bool) -> dict[str, list[bytes]]:
    """Calls that fail whatever their arguments are."""
    by_argument = _NOT_REFUSED | _OF_OTHERS.keys()
    names = NUMBERS.keys() - by_argument - (_OPTIONAL if affinity else set())
    return {
        name: [_fail(errno.ENOSYS if name in _ABSENT else errno.EPERM)]
        for name in sorted(names)
    }


def _by_argument() -> dict[str, list[bytes]]:
    """Calls of which some uses fail."""
    return {
        "clone": [_arg(0), _op(_JSET_K, _CLONE_NEW, 1, 0), _YES, _NO],
        "ioctl": [
            _arg(1),
            _op(_JEQ_K, _TIOCSTI, 2, 0),
            _op(_JEQ_K, _TIOCLINUX, 1, 0),
            _YES,
            _NO,
        ],
        "personality": [
            _arg(0),
            _op(_JEQ_K, 0, 1, 0),
            _op(_JEQ_K, 0xFFFFFFFF, 0, 1),
            _YES,
            _NO,
        ],
        # prlimit on another process could strangle the supervisor.
        "prlimit64": [_arg(0), _op(_JEQ_K, 0, 0, 1), _YES, _NO],
    }


def _sockets_behind_a_network_namespace() -> dict[str, list[bytes]]:
    """Stream and datagram sockets of the three families that programs use.

    Other families (vsock, netlink, packet, alg) cross namespaces or only widen the
    kernel's attack surface.
    """
    body = [
        _arg(0),
        _op(_JEQ_K, _AF_UNIX, 3, 0),
        _op(_JEQ_K, _AF_INET, 2, 0),
        _op(_JEQ_K, _AF_INET6, 1, 0),
        _fail(errno.EAFNOSUPPORT),
        _arg(1),
        _op(_AND_K, 0xF),  # the type without its flags
        _op(_JEQ_K, _SOCK_STREAM, 2, 0),
        _op(_JEQ_K, _SOCK_DGRAM, 1, 0),
        _NO,
        _YES,
    ]
    return {"socket": body}


def _on_the_host() -> dict[str, list[bytes]]:
    """Stream sockets, of which `gate_sockets` decides who they meet.

    And nobody else's priority: Landlock hides no process, and all that its user runs
    could be slowed down.
    """
    bodies: dict[str, list[bytes]] = {name: [_op(_RET_K, _ASK)] for name in ASKED}
    bodies["socket"] = [
        _arg(0),
        _op(_JEQ_K, _AF_UNIX, 2, 0),
        _op(_JEQ_K, _AF_INET, 1, 0),
        _op(_JEQ_K, _AF_INET6, 0, 6),
        _arg(1),
        _op(_AND_K, 0xF),  # the type without its flags
        _op(_JEQ_K, _SOCK_STREAM, 0, 3),
        _arg(2),
        # No other protocol than TCP: multipath TCP connects past Landlock.
        _op(_JEQ_K, 0, 2, 0),
        _op(_JEQ_K, _IPPROTO_TCP, 1, 0),
        _fail(errno.EACCES),
        _YES,
    ]
    for name, flags in _SENDING.items():
        # Data that connects as it is sent would be a connection that nobody allowed.
        bodies[name] = [_arg(flags), _op(_JSET_K, _MSG_FASTOPEN, 1, 0), _YES, _NO]
    # Two sockets on one port: the script's would take a service's clients.
    bodies["setsockopt"] = [
        _arg(1),
        _op(_JEQ_K, _SOL_SOCKET, 0, 2),
        _arg(2),
        _op(_JEQ_K, _SO_REUSEPORT, 1, 0),
        _YES,
        _NO,
    ]
    for name, values in _OF_OTHERS.items():
        body = [_YES, _NO]
        for index, value in reversed(list(enumerate(values))):
            # Equal: on to the next test; else past it and `_YES`, to `_NO`.
            body = [_arg(index), _op(_JEQ_K, value, 0, len(body) - 1), *body]
        bodies[name] = body
    return bodies


def numbers(names: Iterable[str]) -> dict[str, int]:
    """Numbers of calls on this machine.

    Raises:
        KeyError: no table for this architecture, or no such call.
    """
    column = _ARCHES[platform.machine()][0]
    found = {name: NUMBERS[name][column] for name in names}
    return {name: number for name, number in found.items() if number is not None}
