"""A grandchild in a session of its own keeps the output pipe open."""

import subprocess
import sys

nap = [sys.executable, "-c", "import time; time.sleep(60)"]
subprocess.Popen(nap, start_new_session=True)
with open("submission.csv", "w") as f:
    f.write("id,target\n1,0\n")
