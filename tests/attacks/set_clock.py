"""Sets the clock of the machine."""

import time

for clock in (time.CLOCK_REALTIME,):
    try:
        time.clock_settime(clock, time.clock_gettime(clock))
        print("CLOCK")
    except OSError as error:
        print("stopped", error)
