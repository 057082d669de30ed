"""Keeps the memory of the GPU in a daemon."""

import os
import time

try:
    import torch

    usable = torch.cuda.is_available()
except ImportError:
    usable = False
if not usable:
    raise SystemExit(0)
if os.fork() == 0:
    os.setsid()
    blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(8)]
    time.sleep(60 + len(blocks))
time.sleep(2)
