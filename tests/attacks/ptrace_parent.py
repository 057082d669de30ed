"""Attaches a debugger to its parent."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
for pid in {os.getppid(), 1} - {os.getpid()}:
    if libc.ptrace(0x4206, pid, 0, 0) == 0:  # PTRACE_SEIZE: does not stop it
        print("TRACED", pid)
        libc.ptrace(17, pid, 0, 0)
    else:
        print("stopped", os.strerror(ctypes.get_errno()))
