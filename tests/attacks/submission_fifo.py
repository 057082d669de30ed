"""A FIFO: a plain open() waits forever."""

import os

os.mkfifo("submission.csv")
