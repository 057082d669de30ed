"""PPO-step benchmarks on their own; on a GPU also random-weight Qwen3.5-4B.

    python -m benchmarks.bench_llm_train --models=qwen-7m --batches=1,16
    python -m benchmarks.bench_llm_train --rows=128 --row_tokens=2048   # on a GPU

The CPU part is that of `bench_llm --parts=trainer`. The GPU part takes LoRA steps in
bfloat16 and reports seconds per step and the share of the bound (a measured bfloat16
matrix product): a train step of 128 x 2,048 tokens needs 8.4 s at 790 TFLOP/s.
"""

import json
import sys

from absl import app, flags

MODELS = flags.DEFINE_list("models", ["qwen-7m"], "As for bench_llm.")
BATCHES = flags.DEFINE_list("batches", ["1", "16"], "Batch sizes.")
PROMPT_TOKENS = flags.DEFINE_integer("prompt_tokens", 64, "Length of the prompts.")
NEW_TOKENS = flags.DEFINE_integer("new_tokens", 64, "Length of the completions.")
REPEATS = flags.DEFINE_integer("repeats", 5, "Runs of each side; the median counts.")
GROWTH = flags.DEFINE_boolean("growth", True, "Also growth with length.")
ROWS = flags.DEFINE_integer("rows", 128, "GPU: rows per step.")
ROW_TOKENS = flags.DEFINE_integer("row_tokens", 2048, "GPU: tokens per row.")
MICROBATCH = flags.DEFINE_integer("microbatch", 8, "GPU: rows per forward pass.")
RANK = flags.DEFINE_integer("rank", 32, "GPU: LoRA rank; 0 trains all weights.")


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure_4b(*, report, rows=128, row_tokens=2048, microbatch=8, rank=32):
    """Seconds per PPO step of Qwen3.5-4B with random bfloat16 weights."""
    import dataclasses

    import jax
    import jax.numpy as jnp

    from benchmarks import llm_trainer
    from benchmarks.llm_sampler import side_by_side
    from rpg_jax.llm.models import model_for
    from rpg_jax.llm.qwen3_5 import qwen3_5_4b

    config = qwen3_5_4b()
    params = jax.jit(lambda key: model_for(config).init(key, jnp.bfloat16))(
        jax.random.key(0)
    )
    hyper = dataclasses.replace(
        llm_trainer.HYPER,
        microbatch=microbatch,
        lora_rank=rank,
        remat=True,
        compute_dtype="bfloat16",
    )
    data = llm_trainer.random_rows(config, rows, row_tokens // 2, row_tokens // 2)
    run = llm_trainer.ours(config, params, data, hyper)
    del params
    (seconds,) = side_by_side([run], repeats=2)
    peak = llm_trainer.peak_flops(jnp.bfloat16, size=8192)
    # Work that the step needs; recomputed layers are not counted as useful.
    useful = llm_trainer.step_flops(config, data, frozen=bool(rank))
    memory = jax.devices()[0].memory_stats() or {}
    row = {
        "rows": rows,
        "row_tokens": row_tokens,
        "rank": rank,
        "seconds": seconds,
        "peak_flops": peak,
        "mfu": useful / seconds / peak,
        "peak_bytes": memory.get("peak_bytes_in_use"),
    }
    report(
        f"Qwen3.5-4B, rank {rank}, {rows} x {row_tokens} tokens: {seconds:.1f} s, "
        f"{row['mfu']:.0%} of {peak / 1e12:.0f} TFLOP/s"
    )
    return row


def main(_) -> None:
    import jax

    from benchmarks import llm_trainer

    result = {"backend": jax.default_backend(), "device": jax.devices()[0].device_kind}
    if jax.default_backend() == "gpu":
        result["qwen3.5-4b"] = measure_4b(
            report=report,
            rows=ROWS.value,
            row_tokens=ROW_TOKENS.value,
            microbatch=MICROBATCH.value,
            rank=RANK.value,
        )
    else:
        report("no GPU: the Qwen3.5-4B step is left out")
        result |= llm_trainer.measure(
            models=MODELS.value,
            batches=[int(b) for b in BATCHES.value],
            prompt_tokens=PROMPT_TOKENS.value,
            new_tokens=NEW_TOKENS.value,
            repeats=REPEATS.value,
            growth=GROWTH.value,
            report=report,
        )
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    app.run(main)
