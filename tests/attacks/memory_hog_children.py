"""Six children, each within a per-process limit, together far above the limit."""

import os
import time

children = []
for _ in range(6):
    pid = os.fork()
    if pid == 0:
        block = bytearray(b"m") * (200 << 20)
        time.sleep(1.5)
        os._exit(len(block) % 250)
    children.append(pid)
fine = sum(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) >= 0 for p in children)
print("SURVIVED", fine)
