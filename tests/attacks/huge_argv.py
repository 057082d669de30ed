"""Replaces itself with megabytes of arguments that are not text."""

import os
import sys

if len(sys.argv) < 10:
    junk = [b"\xff" * 100_000] * 10
    os.execv(sys.executable, [sys.executable, "script.py", *junk])
os.write(1, os.fsencode(sys.argv[1][:50]))
with open("submission.csv", "w") as f:
    f.write("id,target\n1,0\n")
