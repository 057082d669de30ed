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
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.decoding import (
    Knobs,
    Plan,
    State,
    decode_until,
    decoding_weights,
    few_rows_on_cpu,
    prefill,
)
from rpg_jax.llm.grammar import Grammar, choice_grammar, mask_table
from rpg_jax.llm.head import MaskTable
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
        tokens: ids, ``pad_id`` after the end.
        log_probs: of the distribution sampled from, nats; 0 after the end.
        mask: True for sampled tokens, the stop token included.
        finished: a stop token was sampled.
        truncated: the length ran out first.
        logit_mask: which tokens were allowed at each place, for the trainer.
    """

    tokens: Int[Array, "B L"]
    log_probs: Float[Array, "B L"]
    mask: Bool[Array, "B L"]
    finished: Bool[Array, " B"]
    truncated: Bool[Array, " B"]
    logit_mask: MaskTable[Array] | None = None


class Progress(NamedTuple):
    """Handed to the progress callback between groups of decode steps."""

    step: int
    max_steps: int
    finished: int
    rows: int


def sample(
    key: PRNGKeyArray,
    params: Params,
    config: ModelConfig,
    prompts: Int[ArrayLike, "P T"],
    prompt_mask: Bool[ArrayLike, "P T"],
    *,
    max_new_tokens: int,
    num_samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    presence_penalty: float = 0.0,
    logit_mask: Bool[ArrayLike, "*P V"] | Grammar | None = None,
    stop_ids: Sequence[int] | None = None,
    pad_id: int | None = None,
    rows: Int[ArrayLike, " B"] | None = None,
    compute_dtype: Any = None,
    progress: Callable[[Progress], None] | None = None,
    progress_every: int = 32,
) -> Completions:
    """Sample ``num_samples`` completions of every prompt; see ``Request``.

    Args:
        key: typed PRNG key.
        params: parameters as ``model.init`` or ``load_pretrained`` gives them.
        config: what the parameters belong to.
        prompts: ids, padded on the left.
        prompt_mask: True at real tokens.
        progress: called every ``progress_every`` steps.
        progress_every: steps between these calls, at least 1.

    Returns:
        Completions with L = ``max_new_tokens``.

    Raises:
        ValueError: arguments that do not fit each other.
        FloatingPointError: the model's logits were not finite.
    """
    request = Request(
        max_new_tokens,
        num_samples,
        temperature,
        top_k,
        top_p,
        presence_penalty,
        logit_mask,
        stop_ids,
        pad_id,
        rows,
        compute_dtype,
    )
    if progress_every < 1:  # the loop would never move on
        raise ValueError(f"progress_every must be at least 1, got {progress_every}")
    call = (request, params, config, np.asarray(prompts), np.asarray(prompt_mask, bool))
    return _sample(key, *call, progress, progress_every)


class Request(NamedTuple):
    """What ``sample`` is asked for, beside the prompts.

    Nothing ends at ``config.max_position_embeddings``: prompt and completion may be
    longer together, at positions that the model was not trained on.

    Attributes:
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
    """

    max_new_tokens: int
    num_samples: int
    temperature: float
    top_k: int | None
    top_p: float | None
    presence_penalty: float
    logit_mask: Bool[ArrayLike, "*P V"] | Grammar | None
    stop_ids: Sequence[int] | None
    pad_id: int | None
    rows: Int[ArrayLike, " B"] | None
    compute_dtype: Any


def _sample(
    key: PRNGKeyArray,
    request: Request,
    params: Params,
    config: ModelConfig,
    prompts: Int[np.ndarray, "P T"],
    prompt_mask: Bool[np.ndarray, "P T"],
    progress: Callable[[Progress], None] | None,
    progress_every: int,
) -> Completions:
    _check_prompts(prompts, prompt_mask, config)
    _check_request(request)
    plan = _plan(request, params, len(prompts) * request.num_samples)
    knobs = knobs_of(key, request, config, len(prompts))
    tokens, mask = _pad_to(prompts, prompt_mask, bucket(prompts.shape[1]))
    state = prefill(params, tokens, mask, knobs, config=config, plan=plan)
    weights = decoding_weights(
        params, config=config, dtype=plan.dtype, transpose=plan.few_rows
    )
    longest, batch = request.max_new_tokens, len(state.done)
    step = 0
    while step < longest:
        step = longest if progress is None else min(step + progress_every, longest)
        state = decode_until(
            weights, state, knobs, jnp.int32(step), config=config, plan=plan
        )
        if progress is not None:
            finished = int(jnp.sum(state.done))
            progress(Progress(int(state.t), longest, finished, batch))
            if finished == batch:
                break
    if bool(state.broken):
        raise FloatingPointError(
            "the model produced logits that are not finite: the weights are damaged, "
            "or the last training step diverged"
        )
    return _completions(state, knobs, longest)


def _plan(request: Request, params: Params, batch: int) -> Plan:
    dtype = jnp.dtype(request.compute_dtype or params["embed"].dtype)
    return Plan(
        length=bucket(request.max_new_tokens),
        samples=request.num_samples,
        greedy=request.temperature == 0,
        top_k=request.top_k,
        top_p=request.top_p is not None,
        penalty=request.presence_penalty != 0,
        few_rows=few_rows_on_cpu(params, batch),
        dtype=dtype.name,
    )


def knobs_of(
    key: PRNGKeyArray, request: Request, config: ModelConfig, prompts: int
) -> Knobs:
    samples, wanted = request.num_samples, request.rows
    batch = prompts * samples
    rows = jnp.arange(batch) if wanted is None else jnp.asarray(wanted)
    if rows.shape != (batch,):
        raise ValueError(f"rows has shape {rows.shape}, want ({batch},)")
    stop = config.eos_token_id if request.stop_ids is None else request.stop_ids
    pad_id = request.pad_id
    if pad_id is None:
        pad_id = config.pad_token_id if config.pad_token_id is not None else 0
    return Knobs(
        temperature=jnp.float32(request.temperature or 1.0),
        top_p=jnp.float32(1.0 if request.top_p is None else request.top_p),
        penalty=jnp.float32(request.presence_penalty),
        stop_ids=jnp.asarray(tuple(int(s) for s in stop), jnp.int32),
        pad_id=jnp.int32(pad_id),
        row_keys=jax.vmap(lambda r: jax.random.fold_in(key, r))(rows),
        **mask_table(request.logit_mask, config.vocab_size, prompts, samples),
    )


def _completions(state: State, knobs: Knobs, length: int) -> Completions:
    keep = slice(0, length)
    masks = None
    if knobs.allowed is not None and state.states is not None:
        masks = MaskTable(table=knobs.allowed, which=state.states[:, keep])
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
) -> tuple[Int[np.ndarray, "B T"], Bool[np.ndarray, "B T"]]:
    """Lists of ids -> tokens (int32) and their mask, padded on the left.

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


def _check_request(request: Request) -> None:
    temperature, top_p = request.temperature, request.top_p
    if request.max_new_tokens < 1 or request.num_samples < 1:
        raise ValueError("max_new_tokens and num_samples must be at least 1")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be finite and >= 0, got {temperature}")
    if request.top_k is not None and request.top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {request.top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {top_p}")
    if not math.isfinite(request.presence_penalty):
        raise ValueError(
            f"presence_penalty must be finite, got {request.presence_penalty}"
        )


def _pad_to(
    tokens: np.ndarray, mask: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    pad = ((0, 0), (length - tokens.shape[1], 0))
    # Pads inside the given width hold anything, perhaps ids beyond the vocabulary.
    return np.pad(np.where(mask, tokens, 0).astype(np.int32), pad), np.pad(mask, pad)
