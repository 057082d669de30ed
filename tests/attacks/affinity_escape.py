"""Leaves its core and uses them all."""

import os

everything = range(os.cpu_count())
try:
    os.sched_setaffinity(0, everything)
except OSError as error:
    print("stopped", error)
if len(os.sched_getaffinity(0)) > 1:
    print("WIDER", len(os.sched_getaffinity(0)))
