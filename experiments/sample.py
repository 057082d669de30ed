"""See what a policy writes, or score given token ids.

    python -m experiments.sample --model=tiny --prompt="..." --n=8
    python -m experiments.sample --model=/path/to/Qwen3.5-4B --prompt_file=task.txt
    python -m experiments.sample --model=DIR --score_ids=12,7,81

The last form prints one JSON object and needs no tokenizer: log_probs[i] is the natural
log-probability of ids[i] after ids[:i] (null for the first, which follows nothing).
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from absl import flags

from experiments import cli
from experiments.cli import DRY_RUN, SEED

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


@dataclass(frozen=True)
class Config:
    """The resolved flags."""

    model: str
    prompt: str | None
    system: str | None
    raw: bool
    n: int
    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    presence_penalty: float
    score_ids: tuple[int, ...] | None
    dtype: str
    seed: int


def resolve() -> Config:
    """The configuration that the flags mean.

    Raises:
      UsageError: a flag is out of range, or no prompt was given.
    """
    for flag in (N, MAX_NEW_TOKENS):
        if not 1 <= flag.value <= 1_000_000:
            raise cli.UsageError(f"--{flag.name}={flag.value}: must be 1 to 1000000")
    if not 0 <= TEMPERATURE.value < float("inf"):
        raise cli.UsageError(f"--temperature={TEMPERATURE.value}: must be 0 or more")
    if TOP_K.value < 0:
        raise cli.UsageError(f"--top_k={TOP_K.value}: must be 0 or more")
    if not 0 < TOP_P.value <= 1:
        raise cli.UsageError(f"--top_p={TOP_P.value}: must be above 0 and at most 1")
    if not abs(PRESENCE_PENALTY.value) < float("inf"):
        raise cli.UsageError(f"--presence_penalty={PRESENCE_PENALTY.value}: not finite")
    ids = None if SCORE_IDS.value is None else _ids(SCORE_IDS.value)
    given = [f for f in (PROMPT, PROMPT_FILE) if f.value is not None]
    if ids is not None and given:
        raise cli.UsageError("--score_ids takes no prompt: give the ids alone")
    if ids is None and len(given) != 1:
        raise cli.UsageError("give one of --prompt, --prompt_file and --score_ids")
    return Config(
        model=MODEL.value,
        prompt=None if ids is not None else _prompt(),
        system=SYSTEM.value,
        raw=RAW.value,
        n=N.value,
        max_new_tokens=MAX_NEW_TOKENS.value,
        temperature=TEMPERATURE.value,
        top_k=TOP_K.value or None,
        top_p=TOP_P.value if TOP_P.value < 1 else None,
        presence_penalty=PRESENCE_PENALTY.value,
        score_ids=ids,
        dtype=DTYPE.value,
        seed=SEED.value,
    )


def _ids(values: list[str]) -> tuple[int, ...]:
    try:
        ids = tuple(int(v) for v in values)
    except ValueError:
        raise cli.UsageError(
            f"--score_ids={','.join(values)}: want whole numbers like 12,7,81"
        ) from None
    if not ids:
        raise cli.UsageError("--score_ids is empty")
    return ids


def _prompt() -> str:
    if PROMPT_FILE.value is None:
        text = PROMPT.value
    else:
        try:
            text = Path(PROMPT_FILE.value).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise cli.UsageError(f"--prompt_file: {error}") from None
    if not text.strip():
        raise cli.UsageError("the prompt is empty")
    return text


def load(config: Config) -> tuple[Any, Any, Any]:
    """The model's configuration, parameters and arithmetic type.

    Raises:
      UsageError: the checkpoint cannot be read.
    """
    import jax

    from rpg_jax.llm import CheckpointError, ConfigError, load_pretrained

    dtype = None if config.dtype == "auto" else config.dtype
    if dtype is None and jax.default_backend() == "cpu":
        dtype = "float32"
    try:
        model_config, params = load_pretrained(config.model, dtype=dtype)
    except (CheckpointError, ConfigError) as error:
        raise cli.UsageError(f"--model={config.model}: {error}") from None
    return model_config, params, params["embed"].dtype


def score(config: Config) -> dict[str, Any]:
    """Log-probability of every id after those before it.

    Raises:
      UsageError: the model cannot be read, or an id is not in its vocabulary.
      FloatingPointError: the model's output is not finite.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from rpg_jax.llm.head import token_log_probs
    from rpg_jax.llm.models import model_for

    model_config, params, _ = load(config)
    ids = np.asarray(config.score_ids)
    if ids.min() < 0 or ids.max() >= model_config.vocab_size:
        raise cli.UsageError(
            f"--score_ids: ids must lie in [0, {model_config.vocab_size})"
        )
    log_probs: list[float | None] = [None]
    if len(ids) > 1:
        model = model_for(model_config)

        @jax.jit
        def run(p, tokens):
            hidden, _ = model.forward(p, tokens[:, :-1], tokens[:, :-1] >= 0)
            return token_log_probs(hidden, model.head_weight(p), tokens[:, 1:])

        out = np.asarray(run(params, jnp.asarray(ids[None], jnp.int32)).log_prob[0])
        if not np.isfinite(out).all():
            raise FloatingPointError("the model's log-probabilities are not finite")
        log_probs += [float(x) for x in out]
    return {"model": config.model, "ids": ids.tolist(), "log_probs": log_probs}


def write_samples(config: Config) -> None:
    """Samples and prints completions with their length, time and log-probability."""
    import jax
    import numpy as np

    from rpg_jax.llm import CheckpointError, left_pad, load_tokenizer, sample
    from rpg_jax.llm.tokenizer import chat_ids, decode, stop_ids

    try:
        tokenizer = load_tokenizer(config.model)
    except CheckpointError as error:
        raise cli.UsageError(f"--model={config.model}: {error}") from None
    model_config, params, dtype = load(config)
    if config.raw:
        ids = list(tokenizer.encode(config.prompt, add_special_tokens=False))
    else:
        ids = chat_ids(tokenizer, config.prompt, system=config.system)
    if not ids or max(ids) >= model_config.vocab_size:
        raise cli.UsageError(
            f"--model={config.model}: the tokenizer does not fit the model's "
            f"vocabulary of {model_config.vocab_size}"
        )
    begin = time.perf_counter()
    out = sample(
        jax.random.key(config.seed),
        params,
        model_config,
        *left_pad([ids]),
        num_samples=config.n,
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        presence_penalty=config.presence_penalty,
        stop_ids=stop_ids(model_config, tokenizer),
        compute_dtype=dtype,
        progress=_progress if sys.stderr.isatty() else None,
    )
    tokens, mask = np.asarray(out.tokens), np.asarray(out.mask)
    seconds = time.perf_counter() - begin
    log_probs = np.asarray(out.log_probs).sum(axis=1)
    for i, text in enumerate(decode(tokenizer, tokens, mask)):
        end = "finished" if out.finished[i] else "truncated"
        print(
            f"--- sample {i + 1} of {config.n}: {mask[i].sum()} tokens, {end}, "
            f"log-probability {log_probs[i]:.2f}"
        )
        print(text)
    print(
        f"prompt {len(ids)} tokens, {mask.sum()} sampled in {seconds:.1f} s "
        "(compilation included)",
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
    config = resolve()
    if DRY_RUN.value:
        print(json.dumps(asdict(config), indent=2))
        return 0
    try:
        if config.score_ids is not None:
            print(json.dumps(score(config)))
        else:
            write_samples(config)
    except FloatingPointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    cli.run(main)
