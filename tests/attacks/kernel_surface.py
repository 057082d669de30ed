"""Calls that numerical code never needs and exploits often do."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
if libc.personality(ctypes.c_ulong(0x0040000)) != -1:
    print("KERNEL personality")
numbers = {"userfaultfd": (323, 282), "bpf": (321, 280), "perf": (298, 241)}
column = 0 if os.uname().machine == "x86_64" else 1
attr = ctypes.create_string_buffer(bytes([0, 0, 0, 0, 128]) + bytes(123), 128)
for name, number in numbers.items():
    first = ctypes.c_ulong(0x80000 | 1) if name == "userfaultfd" else attr
    fd = libc.syscall(ctypes.c_long(number[column]), first, 0, -1, -1, 0)
    print("KERNEL" if fd >= 0 else "stopped", name)
