"""Real-time scheduling and negative niceness."""

import os

for change in (
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10)),
    lambda: os.nice(-10),
):
    try:
        change()
        print("PRIORITY")
    except OSError as error:
        print("stopped", error)
