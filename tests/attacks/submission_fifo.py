"""A FIFO: a plain open() waits for ever."""

import os

os.mkfifo("submission.csv")
