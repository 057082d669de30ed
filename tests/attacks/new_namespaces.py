"""Makes namespaces of its own, where it would be root."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
for name, flag in (
    ("user", 0x10000000),
    ("mount", 0x00020000),
    ("pid", 0x20000000),
    ("net", 0x40000000),
):
    if os.fork() == 0:
        if libc.unshare(flag) == 0:
            print("NAMESPACE", name, flush=True)
        os._exit(0)
    os.wait()
    pid = libc.syscall(ctypes.c_long(56), ctypes.c_ulong(flag | 17), 0, 0, 0, 0)
    if os.uname().machine == "x86_64" and pid == 0:
        print("NAMESPACE clone", name, flush=True)
        os._exit(0)
