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

_LD_W_ABS = 0x20
_JEQ_K = 0x15
_JGT_K = 0x25
_JSET_K = 0x45
_RET_K = 0x06

_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_ALLOW = 0x7FFF0000

_NR, _ARCH, _ARGS = 0, 4, 16

# name: (x86-64 number, AArch64 number); None where the architecture lacks the call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "listmount": (458, 458),
    "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "socket": (41, 198),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
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
            pid namespace. Socket pairs are always allowed.
        affinity: allow sched_setaffinity; right only inside a cpuset.
        machine: architecture; the running one by default.

    Raises:
        ValueError: no table for this architecture.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        raise ValueError(f"no seccomp table for {machine!r}: x86_64 and aarch64 only")
    column, audit_arch = _ARCHES[machine]

    def nr(name: str) -> int | None:
        return _NUMBERS[name][column]

    load_nr = _op(_LD_W_ABS, _NR)
    code = [
        _op(_LD_W_ABS, _ARCH),
        _op(_JEQ_K, audit_arch, 1, 0),
        _op(_RET_K, _KILL_PROCESS),
        load_nr,
        _op(_JGT_K, _NEWEST, 0, 1),
        _fail(errno.ENOSYS),
    ]
    refused = _NUMBERS.keys() - _BY_ARGUMENT - _OPTIONAL - _OF_OTHERS.keys()
    for name in sorted(refused):
        if nr(name) is not None:
            reason = errno.ENOSYS if name in _ABSENT else errno.EPERM
            code += _when(nr(name), [_fail(reason)])
    if not affinity:
        code += _when(nr("sched_setaffinity"), [_fail(errno.EPERM)])

    def arg(index: int) -> bytes:
        # Low word: every argument tested here is a 32-bit value to the kernel.
        return _op(_LD_W_ABS, _ARGS + 8 * index)

    allow, deny = _op(_RET_K, _ALLOW), _fail(errno.EPERM)
    code += _when(nr("clone"), [arg(0), _op(_JSET_K, _CLONE_NEW, 1, 0), allow, deny])
    code += _when(
        nr("ioctl"),
        [
            arg(1),
            _op(_JEQ_K, _TIOCSTI, 2, 0),
            _op(_JEQ_K, _TIOCLINUX, 1, 0),
            allow,
            deny,
        ],
    )
    code += _when(
        nr("personality"),
        [
            arg(0),
            _op(_JEQ_K, 0, 1, 0),
            _op(_JEQ_K, 0xFFFFFFFF, 0, 1),
            allow,
            deny,
        ],
    )
    # prlimit on another process could strangle the supervisor.
    code += _when(nr("prlimit64"), [arg(0), _op(_JEQ_K, 0, 0, 1), allow, deny])
    if sockets:
        # Other families (vsock, netlink, packet, alg) cross namespaces or only widen
        # the kernel's attack surface.
        code += _when(
            nr("socket"),
            [
                arg(0),
                _op(_JEQ_K, _AF_UNIX, 3, 0),
                _op(_JEQ_K, _AF_INET, 2, 0),
                _op(_JEQ_K, _AF_INET6, 1, 0),
                _fail(errno.EAFNOSUPPORT),
                arg(1),
                _op(0x54, 0xF),  # A &= 0xf: the type without its flags
                _op(_JEQ_K, _SOCK_STREAM, 2, 0),
                _op(_JEQ_K, _SOCK_DGRAM, 1, 0),
                deny,
                allow,
            ],
        )
    else:
        code += _when(nr("socket"), [_fail(errno.EACCES)])
        # Landlock hides no process: all that its user runs could be slowed down.
        for name, values in _OF_OTHERS.items():
            body = [allow, deny]
            for index, value in reversed(list(enumerate(values))):
                # Equal: on to the next test; else past it and `allow`, to `deny`.
                body = [arg(index), _op(_JEQ_K, value, 0, len(body) - 1), *body]
            code += _when(nr(name), body)
    code.append(allow)
    return b"".join(code)
