"""The memory of the parent by a system call."""

import ctypes
import os
import re


class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


libc = ctypes.CDLL(None, use_errno=True)
libc.process_vm_readv.restype = ctypes.c_ssize_t
parent = os.getppid()
with open(f"/proc/{parent}/maps") as f:
    lines = f.read().splitlines()
for line in lines:
    span, mode = line.split()[:2]
    low, high = (int(part, 16) for part in span.split("-"))
    if not mode.startswith("rw") or high - low > 32 << 20:
        continue
    here = ctypes.create_string_buffer(high - low)
    ours = Span(ctypes.addressof(here), high - low)
    theirs = Span(low, high - low)
    got = libc.process_vm_readv(
        parent, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0
    )
    if got > 0:
        for word in set(re.findall(rb"CANARY-MEM-[0-9a-f]{16}", here.raw[:got])):
            print(word.decode())
