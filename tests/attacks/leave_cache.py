"""Leaves results for the next script wherever it may write."""

import os

home = os.path.expanduser("~/.cache")
for folder in ("/tmp", "/var/tmp", "/dev/shm", home, os.environ["A_INPUT"], "."):
    try:
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/sbx_leftover", "w") as f:
            f.write("CANARY-PLANTED")
    except OSError as error:
        print("stopped", error)
