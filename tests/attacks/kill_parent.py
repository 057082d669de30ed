"""Kills its parent."""

import os
import signal
import time

os.kill(os.getppid(), signal.SIGKILL)
time.sleep(0.5)
print("still here")
