"""Says on every open descriptor that it never started, to have a bad run forgotten."""

import contextlib
import os

for fd in range(3, 256):
    with contextlib.suppress(OSError):
        os.write(fd, b"xboom")
        print("SPOKE on", fd)
raise SystemExit(3)
