"""One rank of a GRPO job on CPU; prints its prices and what its loss saw, as JSON.

python trl_rank_program.py FOLDER price|attach ROWS_PER_RANK
"""

import json
import os
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")

import tiny_trl  # noqa: E402

from rpg_jax.adapters import trl  # noqa: E402


def known(prompts, completions, number, **columns):
    """What a row earns and takes by its prompt and its place in the group."""
    place = [number[:row].count(n) for row, n in enumerate(number)]
    rows = [np.random.default_rng([n, p]) for n, p in zip(number, place, strict=True)]
    # Float32 sees the rewards that a trainer sums: few bits.
    values = [rng.integers(1, 64, 2) / 16 for rng in rows]
    return [float(v[0]) for v in values], [float(v[1]) for v in values]


def main():
    folder, way, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    functions = [trl.price(known) if way == "price" else known]
    trainer = tiny_trl.trainer(
        folder,
        functions,
        per_device_train_batch_size=rows,
        max_steps=3,
        ddp_backend="gloo" if "RANK" in os.environ else None,
    )
    relative = functions[0].relative if way == "price" else trl.attach(trainer)
    charged, priced = [], relative.priced

    def noted(*args, **options):
        found = priced(*args, **options)
        charged.append(found.rate)
        return found

    relative.priced = noted
    trainer.train()
    seen = [advantages.tolist() for advantages in trainer.seen]
    print(
        "RESULT", json.dumps({"charged": charged, "seen": seen, "end": relative.rate})
    )


if __name__ == "__main__":
    main()
