"""Sample completions: one jitted prefill, one jitted ``while_loop`` of decode steps.

A row's randomness is ``fold_in(fold_in(key, row), t)``: it samples the same alone, in
any batch, under any padding. Lengths are rounded up to buckets, so that a run compiles
a few programs and not one per prompt length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.decoding import (
    Knobs,
    Plan,
    decode_until,
    decoding_weights,
    few_rows_on_cpu,
    prefill,
)
from rpg_jax.llm.head import MaskTable
from rpg_jax.llm.menus import Grammar, choice_grammar, mask_table
from rpg_jax.llm.transformer import Params

__all__ = [
    "Completions",
    "Grammar",
    "Progress",
    "bucket",
    "choice_grammar",
    "left_pad",
    "sample",
]


class Completions(NamedTuple):
    """What was sampled; one row per prompt and sample, prompts outermost.

    Attributes:
        tokens: int32 [B, L], ``pad_id`` after the end.
        log_probs: float32 [B, L], of the distribution sampled from; 0 after the end.
        mask: bool [B, L], True for sampled tokens, the stop token included.
        finished: bool [B], a stop token was sampled.
        truncated: bool [B], the length ran out first.
        logit_mask: which tokens were allowed at each place, for the trainer.
    """

    tokens: jax.Array
    log_probs: jax.Array
    mask: jax.Array
    finished: jax.Array
    truncated: jax.Array
    logit_mask: MaskTable | None = None


class Progress(NamedTuple):
    """Handed to the progress callback between groups of decode steps."""

    step: int
    max_steps: int
    finished: int
    rows: int


def sample(
    key: jax.Array,
    params: Params,
    config: ModelConfig,
    prompts: jax.Array,
    prompt_mask: jax.Array,
    *,
    max_new_tokens: int,
    num_samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    presence_penalty: float = 0.0,
    logit_mask: jax.Array | Grammar | None = None,
    stop_ids: Sequence[int] | None = None,
    pad_id: int | None = None,
    rows: jax.Array | None = None,
    compute_dtype: Any = None,
    progress: Callable[[Progress], None] | None = None,
    progress_every: int = 32,
) -> Completions:
    """Sample ``num_samples`` completions of every prompt.

    Nothing ends at ``config.max_position_embeddings``: prompt and completion may be
    longer together, at positions that the model was not trained on.

    Args:
        key: typed PRNG key.
        params: parameters as ``model.init`` or ``load_pretrained`` gives them.
        config: what the parameters belong to.
        prompts: ids [P, T], padded on the left.
        prompt_mask: bool [P, T], True at real tokens.
        max_new_tokens: longest completion, tokens, the stop token included.
        num_samples: completions per prompt; the prompt is read once for all of them.
        temperature: divides the logits; 0 takes the most probable token (whose
            log-probability is then 0: the distribution sampled from has one point).
        top_k: sample among the k most probable tokens.
        top_p: sample in the smallest set of this mass, in (0, 1].
        presence_penalty: nats taken from every token the completion already has.
        logit_mask: allowed tokens, bool [V] or [P, V], or a ``Grammar``; the mask
            that applied at each place comes back for the trainer.
        stop_ids: ids that end a completion; the configuration's by default. A chat
            model ends its turn with another (<|im_end|>):
            ``rpg_jax.llm.stop_ids(config, tokenizer)`` has both.
        pad_id: fills the rows after their end; any id, the mask alone has meaning.
        rows: int [P * num_samples], number of each row for its random stream;
            ``arange`` by default. Give it to reproduce part of a batch.
        compute_dtype: dtype of matrix products and caches; that of ``params``.
        progress: called every ``progress_every`` steps.
        progress_every: steps between these calls, at least 1.

    Returns:
        Completions with L = ``max_new_tokens``.

    Raises:
        ValueError: arguments that do not fit each other.
        FloatingPointError: the model's logits were not finite.
    """
    prompts, prompt_mask = np.asarray(prompts), np.asarray(prompt_mask, bool)
    _check_prompts(prompts, prompt_mask, config)
    _check_settings(
        max_new_tokens, num_samples, temperature, top_k, top_p, presence_penalty
    )
    if progress_every < 1:  # the loop would never move on
        raise ValueError(f"progress_every must be at least 1, got {progress_every}")
    batch = len(prompts) * num_samples
    stop = tuple(
        int(s) for s in (config.eos_token_id if stop_ids is None else stop_ids)
    )
    if pad_id is None:
        pad_id = config.pad_token_id if config.pad_token_id is not None else 0
    dtype = jnp.dtype(compute_dtype or params["embed"].dtype)
    plan = Plan(
        length=bucket(max_new_tokens),
        samples=num_samples,
        greedy=temperature == 0,
        top_k=top_k,
        top_p=top_p is not None,
        penalty=presence_penalty != 0,
        few_rows=few_rows_on_cpu(params, batch),
        dtype=dtype.name,
    )
    rows = jnp.arange(batch) if rows is None else jnp.asarray(rows)
    if rows.shape != (batch,):
        raise ValueError(f"rows has shape {rows.shape}, want ({batch},)")
    knobs = Knobs(
        temperature=jnp.float32(temperature or 1.0),
        top_p=jnp.float32(1.0 if top_p is None else top_p),
        penalty=jnp.float32(presence_penalty),
        stop_ids=jnp.asarray(stop, jnp.int32),
        pad_id=jnp.int32(pad_id),
        row_keys=jax.vmap(lambda r: jax.random.fold_in(key, r))(rows),
        **mask_table(logit_mask, config.vocab_size, len(prompts), num_samples),
    )
    tokens, mask = _pad_to(prompts, prompt_mask, bucket(prompts.shape[1]))
    state = prefill(params, tokens, mask, knobs, config=config, plan=plan)
    weights = decoding_weights(
        params, config=config, dtype=plan.dtype, transpose=plan.few_rows
    )
    step = 0
    while step < max_new_tokens:
        step = max_new_tokens if progress is None else step + progress_every
        step = min(step, max_new_tokens)
        state = decode_until(
            weights, state, knobs, jnp.int32(step), config=config, plan=plan
        )
        if progress is not None:
            finished = int(jnp.sum(state.done))
            progress(Progress(int(state.t), max_new_tokens, finished, batch))
            if finished == batch:
                break
    if bool(state.broken):
        raise FloatingPointError(
            "the model produced logits that are not finite: the weights are damaged, "
            "or the last training step diverged"
        )
    keep = slice(0, max_new_tokens)
    masks = None
    if knobs.allowed is not None:
        masks = MaskTable(table=knobs.allowed, index=state.states[:, keep])
    return Completions(
        tokens=state.tokens[:, keep],
        log_probs=state.log_probs[:, keep],
        mask=state.mask[:, keep],
        finished=state.done,
        truncated=~state.done,
        logit_mask=masks,
    )


def left_pad(
    rows: Sequence[Sequence[int]], pad_id: int = 0, *, length: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Lists of ids -> tokens int32 [B, T] and mask bool [B, T], padded on the left.

    Raises:
        ValueError: no rows, an empty row, or one longer than ``length``.
    """
    if not rows or not all(len(row) for row in rows):
        raise ValueError("every prompt needs at least one token")
    longest = max(len(row) for row in rows)
    length = longest if length is None else length
    if longest > length:
        raise ValueError(f"a prompt has {longest} tokens, the limit is {length}")
    tokens = np.full((len(rows), length), pad_id, np.int32)
    mask = np.zeros((len(rows), length), bool)
    for i, row in enumerate(rows):
        tokens[i, length - len(row) :] = row
        mask[i, length - len(row) :] = True
    return tokens, mask


def bucket(n: int) -> int:
    """n rounded up to one of four sizes per octave, at least 16 apart."""
    step = max(16, 1 << max(0, n.bit_length() - 3))
    return -(-n // step) * step


def _check_prompts(prompts: np.ndarray, mask: np.ndarray, config: ModelConfig) -> None:
    if prompts.ndim != 2 or prompts.shape != mask.shape or not prompts.size:
        raise ValueError(
            f"prompts {prompts.shape} and prompt_mask {mask.shape} must both be [P, T]"
        )
    if not mask[:, -1].all() or (mask[:, 1:] < mask[:, :-1]).any():
        raise ValueError("prompts must be padded on the left, with no empty row")
    real = prompts[mask]
    if real.min() < 0 or real.max() >= config.vocab_size:
        raise ValueError(f"prompt ids must lie in [0, {config.vocab_size})")


def _check_settings(
    max_new_tokens: int,
    num_samples: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    presence_penalty: float,
) -> None:
    if max_new_tokens < 1 or num_samples < 1:
        raise ValueError("max_new_tokens and num_samples must be at least 1")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be finite and >= 0, got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {top_p}")
    if not math.isfinite(presence_penalty):
        raise ValueError(f"presence_penalty must be finite, got {presence_penalty}")


def _pad_to(
    tokens: np.ndarray, mask: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    pad = ((0, 0), (length - tokens.shape[1], 0))
    # Pads inside the given width hold anything, perhaps ids beyond the vocabulary.
    return np.pad(np.where(mask, tokens, 0).astype(np.int32), pad), np.pad(mask, pad)
