"""Waits instead of working: wall time counts, not CPU time."""

import os
import signal
import time

pid = os.fork()
if pid == 0:
    time.sleep(1.2)
    os.kill(os.getppid(), signal.SIGCONT)
    os._exit(0)
os.kill(os.getpid(), signal.SIGSTOP)
with open("submission.csv", "w") as f:
    f.write("id,target\n1,0\n")
