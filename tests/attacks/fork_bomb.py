"""200 children that sleep."""

import os
import time

count = 0
try:
    while count < 200:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        count += 1
except OSError as error:
    print("stopped", error)
print("FORKED", count)
