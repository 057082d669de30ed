"""Closes its output early and works on."""

import os
import time

os.closerange(1, 3)
time.sleep(1)
with open("submission.csv", "w") as f:
    f.write("id,target\n1,0\n")
