"""Sample completions: one jitted prefill, one jitted ``while_loop`` of decode steps.

A row's randomness is ``fold_in(fold_in(key, row), t)``: it samples the same alone, in
any batch, under any padding. Lengths are rounded up to buckets, so that a run compiles
a few programs and not one per prompt length.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.distribution import adjusted_log_probs, draw
from rpg_jax.llm.head import MaskTable
from rpg_jax.llm.layers import few_rows_product
from rpg_jax.llm.models import family_of, is_spec, model_for
from rpg_jax.llm.transformer import Cache, Params, TensorSpec, unstack


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


class Grammar(NamedTuple):
    """A token automaton: in state s the tokens ``allowed[s]`` may follow.

    Attributes:
        allowed: bool [S, V], at least one token per state.
        next_state: int32 [S, V], the state after each token.
        start: int32 [B] or a scalar, where rows begin.
    """

    allowed: jax.Array
    next_state: jax.Array
    start: jax.Array | int = 0


class Progress(NamedTuple):
    """Handed to the progress callback between groups of decode steps."""

    step: int
    max_steps: int
    finished: int
    rows: int


class _Plan(NamedTuple):
    """Everything about a run that is fixed when it is compiled."""

    length: int  # completion bucket
    samples: int
    greedy: bool
    top_k: int | None
    top_p: bool
    penalty: bool
    few_rows: bool
    dtype: str


class _Knobs(NamedTuple):
    """Settings that may change without compiling again."""

    temperature: jax.Array
    top_p: jax.Array
    penalty: jax.Array
    stop_ids: jax.Array  # int32 [n]
    pad_id: jax.Array
    row_keys: jax.Array  # [B] keys
    allowed: jax.Array | None  # bool [M, V]
    next_state: jax.Array | None  # int32 [M, V]
    start: jax.Array | None  # int32 [B]


class _State(NamedTuple):
    cache: Cache
    t: jax.Array
    last: jax.Array  # int32 [B]
    done: jax.Array  # bool [B]
    broken: jax.Array  # bool []: logits were not finite
    tokens: jax.Array
    log_probs: jax.Array
    mask: jax.Array
    present: jax.Array | None  # bool [B, V]
    grammar: jax.Array | None  # int32 [B]
    states: jax.Array | None  # int32 [B, L]


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
        stop_ids: ids that end a completion; the configuration's by default.
        pad_id: fills the rows after their end; any id, the mask alone has meaning.
        rows: int [P * num_samples], number of each row for its random stream;
            ``arange`` by default. Give it to reproduce part of a batch.
        compute_dtype: dtype of matrix products and caches; that of ``params``.
        progress: called every ``progress_every`` steps.

    Returns:
        Completions with L = ``max_new_tokens``.

    Raises:
        ValueError: arguments that do not fit each other.
        FloatingPointError: the model's logits were not finite.
    """
    prompts, prompt_mask = np.asarray(prompts), np.asarray(prompt_mask, bool)
    _check_prompts(prompts, prompt_mask, config)
    _check_settings(max_new_tokens, num_samples, temperature, top_k, top_p)
    batch = len(prompts) * num_samples
    stop = tuple(
        int(s) for s in (config.eos_token_id if stop_ids is None else stop_ids)
    )
    if pad_id is None:
        pad_id = config.pad_token_id if config.pad_token_id is not None else 0
    dtype = jnp.dtype(compute_dtype or params["embed"].dtype)
    plan = _Plan(
        length=bucket(max_new_tokens),
        samples=num_samples,
        greedy=temperature == 0,
        top_k=top_k,
        top_p=top_p is not None,
        penalty=presence_penalty != 0,
        few_rows=_few_rows_on_cpu(params, batch),
        dtype=dtype.name,
    )
    rows = jnp.arange(batch) if rows is None else jnp.asarray(rows)
    if rows.shape != (batch,):
        raise ValueError(f"rows has shape {rows.shape}, want ({batch},)")
    knobs = _Knobs(
        temperature=jnp.float32(temperature or 1.0),
        top_p=jnp.float32(1.0 if top_p is None else top_p),
        penalty=jnp.float32(presence_penalty),
        stop_ids=jnp.asarray(stop, jnp.int32),
        pad_id=jnp.int32(pad_id),
        row_keys=jax.vmap(lambda r: jax.random.fold_in(key, r))(rows),
        **_masks(logit_mask, config, len(prompts), num_samples),
    )
    tokens, mask = _pad_to(prompts, prompt_mask, bucket(prompts.shape[1]))
    state = _prefill(params, tokens, mask, knobs, config=config, plan=plan)
    weights = _decoding_weights(
        params, config=config, dtype=plan.dtype, transpose=plan.few_rows
    )
    step = 0
    while step < max_new_tokens:
        step = max_new_tokens if progress is None else step + progress_every
        step = min(step, max_new_tokens)
        state = _decode(
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


def choice_grammar(
    choices: Sequence[Sequence[int]], vocab_size: int, stop_id: int
) -> Grammar:
    """The automaton that spells one of ``choices`` and then stops: a menu.

    Raises:
        ValueError: no choice, an empty one, or an id outside the vocabulary.
    """
    if not choices or not all(len(c) for c in choices):
        raise ValueError("a menu needs at least one choice, and no empty one")
    flat = [t for c in choices for t in c] + [stop_id]
    if min(flat) < 0 or max(flat) >= vocab_size:
        raise ValueError(f"menu ids must lie in [0, {vocab_size})")
    nodes: list[dict[int, int]] = [{}]
    for choice in choices:
        at = 0
        for token in choice:
            if token not in nodes[at]:
                nodes[at][token] = len(nodes)
                nodes.append({})
            at = nodes[at][token]
        nodes[at].setdefault(stop_id, at)
    allowed = np.zeros((len(nodes), vocab_size), bool)
    following = np.zeros((len(nodes), vocab_size), np.int32)
    for i, edges in enumerate(nodes):
        for token, target in edges.items():
            allowed[i, token] = True
            following[i, token] = target
    return Grammar(jnp.asarray(allowed), jnp.asarray(following))


@functools.partial(jax.jit, static_argnames=("config", "plan"))
def _prefill(params, tokens, mask, knobs, *, config, plan) -> _State:
    """Read the prompts and sample the first token of every row."""
    model = model_for(config)
    dtype = jnp.dtype(plan.dtype)
    prompts, length = tokens.shape
    cache = model.init_cache(prompts, length + plan.length, dtype)
    hidden, cache = model.forward(
        params, tokens, mask, cache=cache, compute_dtype=dtype
    )
    logits = model.logits(params, hidden[:, -1])

    def each(x, axis=0):
        return jnp.repeat(x, plan.samples, axis=axis)

    batch = prompts * plan.samples
    layers = [jax.tree.map(each, c) for c in unstack(config, cache.layers)]
    cache = Cache(layers, each(cache.valid), cache.slot, each(cache.count))
    grammar = knobs.allowed is not None
    state = _State(
        cache=cache,
        t=jnp.int32(0),
        last=jnp.zeros((batch,), jnp.int32),
        done=jnp.zeros((batch,), jnp.bool_),
        broken=jnp.zeros((), jnp.bool_),
        tokens=jnp.full((batch, plan.length), knobs.pad_id, jnp.int32),
        log_probs=jnp.zeros((batch, plan.length), jnp.float32),
        mask=jnp.zeros((batch, plan.length), jnp.bool_),
        present=(
            jnp.zeros((batch, config.vocab_size), jnp.bool_) if plan.penalty else None
        ),
        grammar=knobs.start if grammar else None,
        states=jnp.zeros((batch, plan.length), jnp.int32) if grammar else None,
    )
    return _emit(state, each(logits), knobs, plan)


@functools.partial(
    jax.jit, static_argnames=("config", "plan"), donate_argnames=("state",)
)
def _decode(weights, state, knobs, limit, *, config, plan) -> _State:
    """Sample until every row is done or has ``limit`` tokens."""
    model = model_for(config)

    def body(state: _State) -> _State:
        hidden, cache = model.forward(
            weights,
            state.last[:, None],
            ~state.done[:, None],
            cache=state.cache,
            compute_dtype=jnp.dtype(plan.dtype),
        )
        if plan.few_rows:
            head = model.head_weight(weights)
            logits = few_rows_product(hidden[:, 0], head).astype(jnp.float32)
        else:
            logits = model.logits(weights, hidden[:, 0])
        return _emit(state._replace(cache=cache), logits, knobs, plan)

    return jax.lax.while_loop(lambda s: (s.t < limit) & ~jnp.all(s.done), body, state)


@functools.partial(jax.jit, static_argnames=("config", "dtype", "transpose"))
def _decoding_weights(params, *, config, dtype, transpose) -> Params:
    """The weights as decoding reads them: one tree per layer, in the compute dtype."""
    # Vectors (norms, decays) keep float32; everything larger is a matrix.
    weights = jax.tree.map(
        lambda x: x.astype(dtype) if x.ndim > 1 else x,
        model_for(config).unstack(params),
    )
    if transpose:
        specs = family_of(config).layer_specs
        weights["layers"] = [
            jax.tree.map(_transposed, specs(config, kind), layer, is_leaf=is_spec)
            for kind, layer in zip(config.layer_types, weights["layers"], strict=True)
        ]
    return weights


def _transposed(spec: TensorSpec, w: Any) -> Any:
    plain = spec.kind == "kernel" and isinstance(w, jax.Array)
    return {"transposed": w.T} if plain else w


def _few_rows_on_cpu(params: Params, batch: int) -> bool:
    """Whether products go faster with the weights on the left."""
    device = next(iter(params["embed"].devices()))
    return device.platform == "cpu" and 4 <= batch <= 64


def _emit(state: _State, logits: jax.Array, knobs: _Knobs, plan: _Plan) -> _State:
    """Draw token t of every row that is not done, and write it down."""
    finite = jnp.all(jnp.isfinite(logits) | state.done[:, None])
    allowed = None
    if knobs.allowed is not None:
        allowed = jnp.take(knobs.allowed, state.grammar, axis=0)
    log_probs = adjusted_log_probs(
        logits,
        temperature=knobs.temperature,
        allowed=allowed,
        present=state.present,
        presence_penalty=knobs.penalty if plan.penalty else None,
        top_k=plan.top_k,
        top_p=knobs.top_p if plan.top_p else None,
    )
    if plan.greedy:
        token = jnp.argmax(log_probs, axis=-1).astype(jnp.int32)
        chosen = jnp.zeros(token.shape, jnp.float32)
    else:
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(knobs.row_keys, state.t)
        token = draw(keys, log_probs)
        chosen = jnp.take_along_axis(log_probs, token[:, None], axis=-1)[:, 0]
    live = ~state.done
    token = jnp.where(live, token, knobs.pad_id)
    stops = jnp.any(token[:, None] == knobs.stop_ids[None, :], axis=1)

    def write(array, value):
        return jax.lax.dynamic_update_slice(
            array, value[:, None].astype(array.dtype), (0, state.t)
        )

    new = state._replace(
        t=state.t + 1,
        last=token,
        done=state.done | (live & stops),
        broken=state.broken | ~finite,
        tokens=write(state.tokens, token),
        log_probs=write(state.log_probs, jnp.where(live, chosen, 0.0)),
        mask=write(state.mask, live),
    )
    if plan.penalty:
        rows = jnp.arange(token.shape[0])
        new = new._replace(present=state.present.at[rows, token].max(live))
    if knobs.allowed is not None:
        new = new._replace(states=write(state.states, state.grammar))
        if knobs.next_state is not None:
            following = knobs.next_state[state.grammar, token]
            new = new._replace(grammar=jnp.where(live, following, state.grammar))
    return new


def _masks(
    logit_mask: Any, config: ModelConfig, prompts: int, samples: int
) -> dict[str, Any]:
    """Any form of mask -> table of masks, transitions and starting states."""
    if logit_mask is None:
        return {"allowed": None, "next_state": None, "start": None}
    batch = prompts * samples
    if isinstance(logit_mask, Grammar):
        allowed = jnp.asarray(logit_mask.allowed, bool)
        following = jnp.asarray(logit_mask.next_state, jnp.int32)
        start = jnp.asarray(logit_mask.start, jnp.int32)
        if start.ndim and start.shape != (prompts,):
            raise ValueError(f"grammar starts {start.shape}, want ({prompts},)")
        start = jnp.repeat(jnp.broadcast_to(start, (prompts,)), samples)
        if following.shape != allowed.shape:
            raise ValueError("grammar: allowed and next_state differ in shape")
    else:
        allowed = jnp.atleast_2d(jnp.asarray(logit_mask, bool))
        following = None
        if len(allowed) not in (1, prompts):
            raise ValueError(
                f"logit_mask has shape {jnp.shape(logit_mask)}, want "
                f"({config.vocab_size},) or ({prompts}, {config.vocab_size})"
            )
        start = jnp.repeat(jnp.arange(prompts, dtype=jnp.int32), samples)
        start = start if len(allowed) > 1 else jnp.zeros((batch,), jnp.int32)
    if allowed.shape[-1] != config.vocab_size:
        raise ValueError(
            f"logit mask covers {allowed.shape[-1]} tokens, the vocabulary has "
            f"{config.vocab_size}"
        )
    if not bool(jnp.all(jnp.any(allowed, axis=-1))):
        raise ValueError("a logit mask forbids every token")
    return {"allowed": allowed, "next_state": following, "start": start}


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
) -> None:
    if max_new_tokens < 1 or num_samples < 1:
        raise ValueError("max_new_tokens and num_samples must be at least 1")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be finite and >= 0, got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {top_p}")


def _pad_to(
    tokens: np.ndarray, mask: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    pad = ((0, 0), (length - tokens.shape[1], 0))
    # Pads inside the given width hold anything, perhaps ids beyond the vocabulary.
    return np.pad(np.where(mask, tokens, 0).astype(np.int32), pad), np.pad(mask, pad)
