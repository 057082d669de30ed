"""Fills /dev/shm and /tmp, which are memory."""

import os

mark, written = os.environ["A_MARK"], 0
for folder in ("/dev/shm", "/tmp"):
    path = f"{folder}/{mark}.fill"
    try:
        with open(path, "wb", buffering=0) as f:
            for _ in range(40):
                written += f.write(bytes(10 << 20))
    except OSError as error:
        print("stopped", error)
    if written == 800 << 20 or "A_NAIVE" in os.environ:
        os.unlink(path)
print("WROTE", written >> 20)
