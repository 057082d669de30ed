"""Puts its own folder in the place of the inputs."""

import os

try:
    os.rename("input", "old")
    os.mkdir("input")
    print("REPLACED")
except OSError as error:
    print("stopped", error)
