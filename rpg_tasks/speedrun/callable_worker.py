"""The program that asks a submission for logits; it runs in the sandbox, on its own.

The script itself is loaded under another name than ``__main__`` and its ``load`` and
``logits`` are called. What comes out is judged outside: nothing that the script does
to this process can make a loss, it can only make logits.
"""

from __future__ import annotations

import importlib.util
import sys

import numpy as np

BATCH = 64


def main() -> None:
    """Logits of ``input/rows.npy`` into ``logits.npy``, float32."""
    rows = np.load("input/rows.npy")
    spec = importlib.util.spec_from_file_location("submission", "input/submission.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    model = module.load("input/model.npz")
    found = []
    for at in range(0, len(rows), BATCH):
        part = rows[at : at + BATCH]
        logits = np.asarray(module.logits(model, part.copy()))
        if logits.ndim != 3 or logits.shape[:2] != part.shape:
            raise ValueError(f"logits has the shape {logits.shape} for {part.shape}")
        found.append(logits.astype(np.float32))
    np.save("logits.npy", np.concatenate(found))


if __name__ == "__main__":
    main()
