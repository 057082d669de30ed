"""Stops and kills process 1 and its parent, and floods them with signals."""

import os
import signal
import sys

for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
    for pid in {1, os.getppid()}:
        try:
            os.kill(pid, number)
        except OSError as error:
            print("stopped", error)
try:
    for _ in range(20_000):
        os.kill(1, signal.SIGCHLD)
except OSError as error:
    print("stopped", error)
sys.exit(7)
