"""A classic daemon with closed descriptors stays behind."""

import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    os.closerange(0, 3)
    time.sleep(60)
    os._exit(0)
os.wait()
with open("submission.csv", "w") as f:
    f.write("id,target\n1,0\n")
