"""See what a policy writes, or score given token ids.

    python -m experiments.sample --model=tiny --prompt="..." --n=8
    python -m experiments.sample --model=/path/to/Qwen3.5-4B --prompt_file=task.txt
    python -m experiments.sample --model=DIR --score_ids=12,7,81

The last form prints one JSON object and needs no tokenizer: log_probs[i] is the natural
log-probability of ids[i] after ids[:i] (null for the first, which follows nothing).
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, SEED
from experiments.policies.ask import Question, Written, score, write

MODEL = flags.DEFINE_string(
    "model", "tiny", "tiny, smollm2, a model folder, a .gguf file or a cached hub id."
)
PROMPT = flags.DEFINE_string("prompt", None, "The user's message.")
PROMPT_FILE = flags.DEFINE_string("prompt_file", None, "File with the user's message.")
SYSTEM = flags.DEFINE_string("system", None, "System message.")
RAW = flags.DEFINE_boolean("raw", False, "Feed the prompt without the chat template.")
N = flags.DEFINE_integer("n", 1, "Number of samples.")
MAX_NEW_TOKENS = flags.DEFINE_integer("max_new_tokens", 512, "Longest completion.")
TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "0 takes the likeliest token.")
TOP_K = flags.DEFINE_integer("top_k", 0, "Sample among the k likeliest; 0: all.")
TOP_P = flags.DEFINE_float("top_p", 1.0, "Sample in the smallest set of this mass.")
PRESENCE_PENALTY = flags.DEFINE_float(
    "presence_penalty", 0.0, "Nats off every token already written."
)
SCORE_IDS = flags.DEFINE_list(
    "score_ids", None, "Token ids to score instead of sampling."
)
DTYPE = flags.DEFINE_enum(
    "dtype",
    "auto",
    ["auto", "float32", "bfloat16"],
    "Arithmetic; auto is float32 on CPU and the stored type on accelerators.",
)
flags.declare_key_flag("seed")
flags.declare_key_flag("dry_run")


def resolve() -> Question:
    """The question that the flags ask.

    Raises:
      UsageError: a flag is out of range, or no prompt was given.
    """
    ids = None if SCORE_IDS.value is None else _ids(SCORE_IDS.value)
    given = [f for f in (PROMPT, PROMPT_FILE) if f.value is not None]
    if ids is not None and given:
        raise cli.UsageError("--score_ids takes no prompt: give only the ids")
    if len(given) > 1:
        raise cli.UsageError("give one of --prompt, --prompt_file and --score_ids")
    return Question(
        model=MODEL.value,
        prompt=PROMPT.value if PROMPT_FILE.value is None else _text(PROMPT_FILE.value),
        system=SYSTEM.value,
        raw=RAW.value,
        n=N.value,
        max_new_tokens=MAX_NEW_TOKENS.value,
        temperature=TEMPERATURE.value,
        top_k=TOP_K.value or None,
        top_p=TOP_P.value if TOP_P.value != 1 else None,
        presence_penalty=PRESENCE_PENALTY.value,
        score_ids=ids,
        dtype=DTYPE.value,
        seed=SEED.value,
    )


def _ids(values: list[str]) -> tuple[int, ...]:
    try:
        return tuple(int(v) for v in values)
    except ValueError:
        raise cli.UsageError(
            f"--score_ids={','.join(values)}: want whole numbers like 12,7,81"
        ) from None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise cli.UsageError(f"--prompt_file: {error}") from None


def show(written: Written) -> None:
    """Print answers with their length and log-probability; the time on stderr."""
    number = len(written.texts)
    for i, text in enumerate(written.texts):
        end = "finished" if written.finished[i] else "truncated"
        print(
            f"--- sample {i + 1} of {number}: {written.tokens[i]} tokens, {end}, "
            f"log-probability {written.log_probs[i]:.2f}"
        )
        print(text)
    print(
        f"prompt {written.prompt_tokens} tokens, {sum(written.tokens)} sampled in "
        f"{written.seconds:.1f} s (compilation included)",
        file=sys.stderr,
    )


def _progress(at: Any) -> None:
    end = "\n" if at.finished == at.rows or at.step >= at.max_steps else ""
    print(
        f"\rtoken {at.step} of {at.max_steps} or fewer, {at.finished}/{at.rows} ended",
        end=end,
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    """Runs the command; returns its exit code."""
    question = resolve()
    if DRY_RUN.value:
        print(json.dumps(asdict(question), indent=2))
        return 0
    try:
        if question.score_ids is not None:
            print(json.dumps(score(question)))
        else:
            show(write(question, progress=_progress if sys.stderr.isatty() else None))
    except FloatingPointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    cli.run(main)
