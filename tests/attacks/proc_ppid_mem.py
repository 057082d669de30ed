"""The memory of the parent and of process 1."""

import os
import re

for pid in {os.getppid(), 1}:
    try:
        with open(f"/proc/{pid}/maps") as f:
            lines = f.read().splitlines()
        memory = open(f"/proc/{pid}/mem", "rb", 0)  # noqa: SIM115
    except OSError as error:
        print("stopped", error)
        continue
    for line in lines:
        span, mode = line.split()[:2]
        low, high = (int(part, 16) for part in span.split("-"))
        if not mode.startswith("rw") or high - low > 64 << 20:
            continue
        try:
            memory.seek(low)
            data = memory.read(high - low)
        except (OSError, ValueError, OverflowError):
            continue
        for word in set(re.findall(rb"CANARY-MEM-[0-9a-f]{16}", data)):
            print(word.decode())
