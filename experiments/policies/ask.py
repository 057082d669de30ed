"""Ask a model once, outside any run: sample answers, or score given token ids."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.config.errors import UsageError

_MOST = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, and how it is answered.

    Attributes:
        model: tiny, smollm2, a model folder, a .gguf file or a cached hub id.
        prompt: the user's message; None when ids are scored.
        system: the system message.
        raw: feed the prompt without the chat template.
        n: number of samples.
        max_new_tokens: longest answer.
        temperature: 0 takes the likeliest token.
        top_k: sample among so many likeliest tokens; None: all.
        top_p: sample in the smallest set of this mass; None: all.
        presence_penalty: nats off every token already written.
        score_ids: token ids to score; None when answers are sampled.
        dtype: ``float32``, ``bfloat16``; ``auto`` is float32 on CPU and the stored type
            on accelerators.
        seed: of the sampler.
    """

    model: str = "tiny"
    prompt: str | None = None
    system: str | None = None
    raw: bool = False
    n: int = 1
    max_new_tokens: int = 512
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    presence_penalty: float = 0.0
    score_ids: tuple[int, ...] | None = None
    dtype: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n", "max_new_tokens"):
            if not 1 <= getattr(self, name) <= _MOST:
                raise UsageError(
                    f"--{name}={getattr(self, name)}: must be 1 to {_MOST}"
                )
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"--temperature={self.temperature}: must be 0 or more")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"--top_k={self.top_k}: must be 0 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"--top_p={self.top_p}: must be above 0 and at most 1")
        if not abs(self.presence_penalty) < float("inf"):
            raise UsageError(f"--presence_penalty={self.presence_penalty}: not finite")
        if (self.prompt is None) == (self.score_ids is None):
            raise UsageError("give one of --prompt, --prompt_file and --score_ids")
        if self.prompt is not None and not self.prompt.strip():
            raise UsageError("the prompt is empty")
        if self.score_ids is not None and not self.score_ids:
            raise UsageError("--score_ids is empty")


class Written(NamedTuple):
    """Sampled answers, one entry each.

    Attributes:
        texts: what was written.
        tokens: lengths.
        finished: whether an answer ended by itself.
        log_probs: natural log-probability of each answer.
        prompt_tokens: length of the prompt.
        seconds: of sampling, compilation included.
    """

    texts: list[str]
    tokens: list[int]
    finished: list[bool]
    log_probs: list[float]
    prompt_tokens: int
    seconds: float


def load(question: Question) -> tuple[Any, Any, Any]:
    """The model's configuration, parameters and arithmetic type.

    Raises:
        UsageError: the checkpoint cannot be read.
    """
    import jax

    from rpg_jax.llm import CheckpointError, ConfigError, load_pretrained

    dtype = None if question.dtype == "auto" else question.dtype
    if dtype is None and jax.default_backend() == "cpu":
        dtype = "float32"
    try:
        config, params = load_pretrained(question.model, dtype=dtype)
    except (CheckpointError, ConfigError) as error:
        raise UsageError(f"--model={question.model}: {error}") from None
    return config, params, params["embed"].dtype


def score(question: Question) -> dict[str, Any]:
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

    config, params, _ = load(question)
    ids = np.asarray(question.score_ids)
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        raise UsageError(f"--score_ids: ids must lie in [0, {config.vocab_size})")
    log_probs: list[float | None] = [None]
    if len(ids) > 1:
        model = model_for(config)

        @jax.jit
        def run(p: Any, tokens: jax.Array) -> jax.Array:
            hidden, _ = model.forward(p, tokens[:, :-1], tokens[:, :-1] >= 0)
            return token_log_probs(hidden, model.head_weight(p), tokens[:, 1:]).log_prob

        out = np.asarray(run(params, jnp.asarray(ids[None], jnp.int32))[0])
        if not np.isfinite(out).all():
            raise FloatingPointError("the model's log-probabilities are not finite")
        log_probs += [float(x) for x in out]
    return {"model": question.model, "ids": ids.tolist(), "log_probs": log_probs}


def write(
    question: Question, *, progress: Callable[[Any], None] | None = None
) -> Written:
    """Sample the answers.

    Args:
        question: with a prompt.
        progress: told how far the sampler is.

    Raises:
        UsageError: the model or its tokenizer cannot be read or do not fit.
    """
    import jax
    import numpy as np

    from rpg_jax.llm import CheckpointError, left_pad, load_tokenizer, sample
    from rpg_jax.llm.tokenizer import decode, stop_ids

    try:
        tokenizer = load_tokenizer(question.model)
    except CheckpointError as error:
        raise UsageError(f"--model={question.model}: {error}") from None
    config, params, dtype = load(question)
    ids = _prompt_ids(question, tokenizer, config.vocab_size)
    begin = time.perf_counter()
    out = sample(
        jax.random.key(question.seed),
        params,
        config,
        *left_pad([ids]),
        num_samples=question.n,
        max_new_tokens=question.max_new_tokens,
        temperature=question.temperature,
        top_k=question.top_k,
        top_p=question.top_p,
        presence_penalty=question.presence_penalty,
        stop_ids=stop_ids(config, tokenizer),
        compute_dtype=dtype,
        progress=progress,
    )
    tokens, mask = np.asarray(out.tokens), np.asarray(out.mask)
    seconds = time.perf_counter() - begin
    return Written(
        texts=decode(tokenizer, tokens, mask),
        tokens=mask.sum(axis=1).tolist(),
        finished=np.asarray(out.finished).tolist(),
        log_probs=np.asarray(out.log_probs).sum(axis=1).tolist(),
        prompt_tokens=len(ids),
        seconds=seconds,
    )


def _prompt_ids(question: Question, tokenizer: Any, vocabulary: int) -> list[int]:
    from rpg_jax.llm.tokenizer import chat_ids

    text = question.prompt or ""
    if question.raw:
        ids = list(tokenizer.encode(text, add_special_tokens=False))
    else:
        ids = chat_ids(tokenizer, text, system=question.system)
    if not ids or max(ids) >= vocabulary:
        raise UsageError(
            f"--model={question.model}: the tokenizer does not fit the model's "
            f"vocabulary of {vocabulary}"
        )
    return ids
