"""Reads standard input: the end must come at once."""

import sys

print("GOT", repr(sys.stdin.read(100)))
