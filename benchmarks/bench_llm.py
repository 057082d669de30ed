"""Language-model benchmarks: ours against transformers on the same weights.

    python -m benchmarks.bench_llm                       # sampler and trainer
    python -m benchmarks.bench_llm --parts=sampler --models=qwen-100m --batches=1,16
    python -m benchmarks.bench_llm --new_tokens=16 --repeats=1   # a quick try

Every ratio is measured side by side in one process, alternating the two sides, as the
median of --repeats runs after one run of each that is thrown away (it compiles). One
JSON object on stdout, a readable line per measurement on stderr. Needs torch and
transformers: pip install rpg-jax[llm,parity].
"""

import importlib
import json
import platform
import sys
from pathlib import Path

from absl import app, flags

PARTS = flags.DEFINE_list("parts", ["sampler", "trainer"], "What to measure.")
MODELS = flags.DEFINE_list(
    "models", ["qwen-100m", "smollm2"], "qwen-100m, qwen-7m, smollm2 or model folders."
)
BATCHES = flags.DEFINE_list("batches", ["1", "16"], "Batch sizes.")
PROMPT_TOKENS = flags.DEFINE_integer("prompt_tokens", 64, "Length of the prompts.")
NEW_TOKENS = flags.DEFINE_integer("new_tokens", 64, "Tokens sampled per row.")
REPEATS = flags.DEFINE_integer("repeats", 5, "Runs of each side; the median counts.")
GROWTH = flags.DEFINE_boolean("growth", True, "Also growth with batch and length.")
OUT = flags.DEFINE_string("out", None, "Also write the JSON to this file.")


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(_) -> None:
    import jax

    result = {
        "machine": platform.processor() or platform.machine(),
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }
    for part in PARTS.value:
        try:
            module = importlib.import_module(f"benchmarks.llm_{part}")
        except ModuleNotFoundError as error:
            raise app.UsageError(f"--parts={part}: {error}") from error
        result[part] = module.measure(
            models=MODELS.value,
            batches=[int(b) for b in BATCHES.value],
            prompt_tokens=PROMPT_TOKENS.value,
            new_tokens=NEW_TOKENS.value,
            repeats=REPEATS.value,
            growth=GROWTH.value,
            report=report,
        )
    text = json.dumps(result, indent=2)
    print(text)
    if OUT.value:
        Path(OUT.value).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
