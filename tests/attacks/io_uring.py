"""A ring that does its system calls out of a filter's sight."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
params = ctypes.create_string_buffer(120)
fd = libc.syscall(ctypes.c_long(425), 4, params)
print("RING" if fd >= 0 else os.strerror(ctypes.get_errno()))
