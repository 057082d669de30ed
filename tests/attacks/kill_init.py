"""Stops and kills process 1 and floods it with signals."""

import os
import signal
import sys

for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
    try:
        os.kill(1, number)
    except OSError as error:
        print("stopped", error)
try:
    for _ in range(20_000):
        os.kill(1, signal.SIGCHLD)
except OSError as error:
    print("stopped", error)
sys.exit(7)
