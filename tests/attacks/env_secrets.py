"""Tokens in its own environment."""

import os

for name, value in sorted(os.environ.items()):
    print(name, value)
