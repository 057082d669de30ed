"""Runs after an attack: looks for what a later script could find, then removes it."""

import contextlib
import ctypes
import os
import socket

mark = os.environ["A_MARK"]
naive = "A_NAIVE" in os.environ
home = os.path.expanduser("~/.cache")
for folder in ("/tmp", "/var/tmp", "/dev/shm", home, "input", "."):
    for name in ("sbx_leftover", mark + ".fill", "sbx_left"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            print("CANARY-PLANTED in", folder, name)
            with contextlib.suppress(OSError):
                os.unlink(path)
libc = ctypes.CDLL(None, use_errno=True)
for name, get, remove in (
    ("shm", lambda: libc.shmget(0x5B5B5B, 0, 0), lambda i: libc.shmctl(i, 0, None)),
    ("msg", lambda: libc.msgget(0x5B5B5B, 0), lambda i: libc.msgctl(i, 0, None)),
    ("sem", lambda: libc.semget(0x5B5B5B, 0, 0), lambda i: libc.semctl(i, 0, 0)),
):
    number = get()
    if number >= 0:
        print("CANARY-PLANTED in System V", name)
        remove(number)
with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
    peer.settimeout(1)
    peer.connect("\0sbx-" + mark)
    print(peer.recv(100).decode(), "behind an abstract socket")
keyctl = 250 if os.uname().machine == "x86_64" else 219
for ring in (-3, -4, -5):
    key = libc.syscall(ctypes.c_long(keyctl), 10, ring, b"user", b"sbx_left", 0)
    if key > 0:
        print("CANARY-PLANTED in keyring", ring)
        libc.syscall(ctypes.c_long(keyctl), 21, key)  # KEYCTL_INVALIDATE
print("looked")
