"""The seccomp program, run by an interpreter of its own instruction set."""

import errno
import os
import re
import struct
from pathlib import Path

import pytest
from sandbox_help import has, job

from sandbox_exec import Level, run_script
from sandbox_exec.seccomp import _NEWEST, build_filter
from sandbox_exec.seccomp_numbers import NUMBERS

ALLOW, KILL, ASK = 0x7FFF0000, 0x80000000, 0x7FC00000
X86, ARM, I386 = 0xC000003E, 0xC00000B7, 0x40000003


def _verdict(program: bytes, nr: int, args=(), arch: int = X86) -> int:
    """Execute the filter on one call (classic BPF as of Linux filter.rst)."""
    values = [*args, *[0] * (6 - len(args))]
    data = struct.pack("=IIQ6Q", nr & 0xFFFFFFFF, arch, 0, *values)
    code = [
        struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)
    ]
    assert len(code) <= 4096
    a, pc = 0, 0
    while True:
        op, yes, no, k = code[pc]
        pc += 1
        if op == 0x20:
            a = struct.unpack_from("=I", data, k)[0]
        elif op == 0x54:
            a &= k
        elif op == 0x06:
            return k
        else:
            test = {0x15: a == k, 0x25: a > k, 0x45: bool(a & k)}[op]
            pc += yes if test else no


def _errno(verdict: int) -> int:
    assert verdict & 0xFFFF0000 == 0x00050000, hex(verdict)
    return verdict & 0xFFFF


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def machine(request):
    return request.param


def _call(machine, name, *args, **options):
    options = {"sockets": True, "affinity": True} | options
    program = build_filter(machine=machine, **options)
    column, arch = (0, X86) if machine == "x86_64" else (1, ARM)
    return _verdict(program, NUMBERS[name][column], args, arch)


def test_denied_calls_fail_softly(machine):
    for name in ("ptrace", "mount", "unshare", "setns", "bpf", "keyctl", "chroot"):
        assert _errno(_call(machine, name)) == errno.EPERM, name
    for name in ("io_uring_setup", "clone3", "memfd_create", "shmget", "mq_open"):
        assert _errno(_call(machine, name)) == errno.ENOSYS, name


def test_ordinary_calls_pass():
    program = build_filter(machine="x86_64", sockets=True, affinity=True)
    # read write open mmap futex execve openat getrandom sched_getaffinity socketpair
    for nr in (0, 1, 2, 9, 202, 59, 257, 318, 204, 53, 57, 62, 435 - 1):
        assert _verdict(program, nr) == ALLOW, nr


def test_arguments_decide(machine):
    assert _call(machine, "clone", 17) == ALLOW
    assert _call(machine, "clone", 0x003D0F00) == ALLOW  # a thread of glibc
    for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x02000000):
        assert _errno(_call(machine, "clone", flag | 17)) == errno.EPERM
    assert _call(machine, "ioctl", 1, 0x5401) == ALLOW
    for request in (0x5412, 0x541C, 0x5412 | 1 << 32):
        assert _errno(_call(machine, "ioctl", 0, request)) == errno.EPERM
    assert _call(machine, "personality", 0xFFFFFFFF) == ALLOW
    assert _errno(_call(machine, "personality", 0x40000)) == errno.EPERM
    assert _call(machine, "prlimit64", 0, 7) == ALLOW
    assert _errno(_call(machine, "prlimit64", 1, 7)) == errno.EPERM


def test_socket_families(machine):
    for family in (1, 2, 10):
        assert _call(machine, "socket", family, 1 | 0o2000000) == ALLOW
        assert _call(machine, "socket", family, 2) == ALLOW
        assert _errno(_call(machine, "socket", family, 3)) == errno.EPERM
    for family in (16, 17, 38, 40, 0, 1 << 31):
        assert _errno(_call(machine, "socket", family, 1)) == errno.EAFNOSUPPORT


def test_without_a_network_namespace_addresses_are_asked_for(machine):
    def call(name, *args):
        return _call(machine, name, *args, sockets=False)

    for family in (1, 2, 10):
        assert call("socket", family, 1 | 0o2000000) == ALLOW
        assert call("socket", family, 1, 6) == ALLOW
        for kind, protocol in ((2, 0), (3, 0), (5, 0), (1, 262), (1, 132)):
            assert _errno(call("socket", family, kind, protocol)) == errno.EACCES
    for family in (16, 17, 38, 40, 0, 1 << 31):
        assert _errno(call("socket", family, 1)) == errno.EACCES
    for name in ("bind", "connect", "listen"):
        assert call(name, 3) == ASK
        assert _call(machine, name, 3) == ALLOW  # its network is its own
    assert call("sendto", 3, 0, 1, 0x4000) == call("sendmsg", 3, 0, 0x4000) == ALLOW
    fast = 0x20000000
    assert _errno(call("sendto", 3, 0, 1, fast | 0x4000)) == errno.EPERM
    assert _errno(call("sendmsg", 3, 0, fast)) == errno.EPERM
    assert _errno(call("sendmmsg", 3, 0, 1, fast)) == errno.EPERM
    assert call("setsockopt", 3, 1, 2) == call("setsockopt", 3, 6, 15) == ALLOW
    assert _errno(call("setsockopt", 3, 1, 15)) == errno.EPERM


def test_affinity_is_held_where_no_cpuset_holds_it(machine):
    assert _call(machine, "sched_setaffinity") == ALLOW
    assert _errno(_call(machine, "sched_setaffinity", affinity=False)) == errno.EPERM


def test_priorities_of_others_are_held_where_they_can_be_seen(machine):
    own = {
        "setpriority": [(0, 0)],
        "ioprio_set": [(1, 0)],
        "sched_setscheduler": [(0,)],
        "sched_setparam": [(0,)],
        "sched_setattr": [(0,)],
    }
    others = {
        "setpriority": [(0, 7), (1, 0), (2, 0), (2, 7)],
        "ioprio_set": [(1, 7), (2, 0), (3, 0)],
        "sched_setscheduler": [(7,)],
        "sched_setparam": [(7,)],
        "sched_setattr": [(7,)],
    }
    for name, calls in own.items():
        for args in calls:
            assert _call(machine, name, *args, sockets=False) == ALLOW, name
    for name, calls in others.items():
        for args in calls:
            denied = _call(machine, name, *args, sockets=False)
            assert _errno(denied) == errno.EPERM, (name, args)
            assert _call(machine, name, *args) == ALLOW  # a pid namespace hides them


def test_foreign_and_future_calls():
    program = build_filter(machine="x86_64", sockets=True, affinity=True)
    assert _verdict(program, 1, arch=I386) == KILL
    assert _verdict(program, 1, arch=ARM) == KILL
    assert _errno(_verdict(program, 0x40000001)) == errno.ENOSYS
    assert _errno(_verdict(program, _NEWEST + 1)) == errno.ENOSYS
    assert _errno(_verdict(program, 0xFFFFFFFF)) == errno.ENOSYS
    with pytest.raises(ValueError, match="no seccomp table"):
        build_filter(machine="riscv64", sockets=True, affinity=True)


@pytest.mark.parametrize(
    ("column", "header"),
    [
        (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        (1, "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_numbers_are_those_of_the_kernel_headers(column, header):
    if not os.path.exists(header):
        pytest.skip("no kernel headers here")
    text = Path(header).read_text()
    real = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text))
    checked = 0
    for name, numbers in NUMBERS.items():
        if name in real and numbers[column] is not None:
            assert int(real[name]) == numbers[column], name
            checked += 1
    assert checked > 50


@pytest.mark.skipif(not has(Level.NAMESPACES), reason="needs user namespaces")
def test_the_kernel_agrees():
    text = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000) == -1 and ctypes.get_errno() == 1
assert libc.syscall(ctypes.c_long(425), 4, 0) == -1 and ctypes.get_errno() == 38
assert open("/proc/self/status").read().count("Seccomp:\\t2") == 1
"""
    record = run_script(job(text))
    assert record.status == "ok", record.stderr_head
