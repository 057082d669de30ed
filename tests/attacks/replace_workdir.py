"""Moves its working folder away and leaves a link."""

import os

here = os.getcwd()
try:
    os.rename(here, here + ".old")
    os.symlink(os.environ["A_OUTSIDE"], here)
    print("REPLACED")
except OSError as error:
    print("stopped", error)
