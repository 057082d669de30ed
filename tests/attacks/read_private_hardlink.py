"""The answers through a hard link."""

import os

os.link(os.environ["A_PRIVATE"], "twin.csv")
with open("twin.csv") as f:
    print(f.read())
