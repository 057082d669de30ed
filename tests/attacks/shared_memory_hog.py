"""Grows to 2 GB of shared anonymous memory, which is no process's private memory."""

import mmap

blocks = []
for _ in range(100):
    block = mmap.mmap(-1, 20 << 20)
    block.write(b"m" * (20 << 20))
    blocks.append(block)
print("ATE", len(blocks) * 20)
