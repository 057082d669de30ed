"""POSIX and System V shared memory that outlives it."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
print("shmget", libc.shmget(0x5B5B5B, 1 << 16, 0o1666))
print("msgget", libc.msgget(0x5B5B5B, 0o1666))
print("semget", libc.semget(0x5B5B5B, 1, 0o1666))
from multiprocessing import resource_tracker, shared_memory  # noqa: E402

block = shared_memory.SharedMemory("sbx_left", create=True, size=1 << 16)
block.buf[:14] = b"CANARY-PLANTED"
resource_tracker.unregister(block._name, "shared_memory")
os._exit(0)
