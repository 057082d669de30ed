"""Runs a program from memory that no file system shows."""

import os
import shutil

try:
    fd = os.memfd_create("program")
    with open(shutil.which("true"), "rb") as source:
        os.write(fd, source.read())
    if os.spawnv(os.P_WAIT, f"/proc/self/fd/{fd}", ["true"]) in (0, 127):
        print("MEMFD")
except OSError as error:
    print("stopped", error)
