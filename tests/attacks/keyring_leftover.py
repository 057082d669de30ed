"""Keys in the kernel's keyrings."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
add_key = 248 if os.uname().machine == "x86_64" else 217
for ring in (-3, -4, -5):  # session, user, user session
    key = libc.syscall(
        ctypes.c_long(add_key), b"user", b"sbx_left", b"CANARY-PLANTED", 14, ring
    )
    print("key", ring, key)
