"""Memory of Qwen3.5-4B's step by setting: the table in docs/how-to/gpu.md.

    python -m benchmarks.memory_table          # some minutes a row

Each row compiles the sampler and the update for shapes alone (``rpg_jax.llm.memory``):
answers of 2,500 tokens to prompts of 2,560, 128 a step.
"""

import argparse
import sys
from collections.abc import Sequence

from experiments.config.devices import DEVICES
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.known import known_config
from rpg_jax.llm.memory import GIB, step_memory

#: Microbatch, LoRA rank, answers sampled at one time.
ROWS = ((1, 0, 16), (2, 0, 16), (4, 0, 64), (1, 32, 8), (2, 32, 16))


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="Qwen3.5-4B")
    flags = parser.parse_args(argv)
    config = known_config(flags.model)
    print(
        "| weights trained | `--microbatch` | `--group` | always there | prefill | "
        "decode | update | fits |\n|---|---|---|---|---|---|---|---|"
    )
    for microbatch, rank, group in ROWS:
        hyper = PPOHyper(
            microbatch=microbatch, lora_rank=rank, compute_dtype="bfloat16", epochs=1
        )
        found = step_memory(
            config, hyper, rows=128, prompt=2560, completion=2500, group=group
        )
        peaks = [f"{peak / GIB:.0f}" for peak in found.peaks.values()]
        fits = [n for n, d in DEVICES.items() if found.peak <= d.gib * GIB]
        kind = f"LoRA, rank {rank}" if rank else "all"
        cells = (kind, microbatch, group, f"{found.resident / GIB:.0f}", *peaks)
        print(
            "| " + " | ".join(map(str, cells)) + f" | {', '.join(fits) or 'none'} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
