"""Tokens in the environment and command line of its ancestors."""

import os

for pid in {os.getppid(), 1}:
    for name in ("environ", "cmdline"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as f:
                print(pid, name, f.read())
        except OSError as error:
            print("stopped", error)
