"""Links under the names that a harness may write to."""

import os

names = ("stdout.txt", "stderr.txt", "run.log", "result.json", "record.json")
for name in names:
    os.symlink(os.environ["A_OUTSIDE"] + "/victim.txt", name)
print("clobber")
