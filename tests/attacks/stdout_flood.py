"""A quarter of a gigabyte on one line."""

import os

block = memoryview(b"F" * (1 << 20))
for _ in range(256):
    rest = block
    while rest:
        rest = rest[os.write(1, rest) :]
with open("submission.csv", "w") as f:
    f.write("id,target\n1,0\n")
