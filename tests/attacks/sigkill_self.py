"""Kills itself: neither out of memory nor a timeout."""

import os

os.kill(os.getpid(), 9)
