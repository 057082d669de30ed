"""The answers through a symbolic link."""

import os

os.symlink(os.environ["A_PRIVATE"], "alias.csv")
with open("alias.csv") as f:
    print(f.read())
