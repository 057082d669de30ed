"""Writes kernel settings under /proc/sys."""

import glob

for path in ("/proc/sys/kernel/hostname", "/proc/sys/vm/swappiness"):
    try:
        with open(path) as f:
            value = f.read()
        with open(path, "w") as f:
            f.write(value)
        print("SETTING", path)
    except OSError as error:
        print("stopped", error)
for path in glob.glob("/proc/self/oom_score_adj"):
    try:
        with open(path, "w") as f:
            f.write("-900")
        print("SETTING", path)
    except OSError as error:
        print("stopped", error)
