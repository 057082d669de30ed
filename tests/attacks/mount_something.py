"""Mounts, unmounts, remounts and changes its root."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("here")
if libc.mount(b"none", b"here", b"tmpfs", 0, None) == 0:
    print("MOUNTED")
    libc.umount2(b"here", 2)
if libc.mount(None, os.path.abspath("input").encode(), None, 0x20 | 0x1000, None) == 0:
    print("MOUNTED again")
if libc.chroot(b"here") == 0:
    print("MOUNTED root")
