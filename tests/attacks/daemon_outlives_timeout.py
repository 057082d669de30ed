"""A daemon beside a main process that never ends."""

import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(90)
    os._exit(0)
time.sleep(90)
