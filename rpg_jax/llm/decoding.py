"""The compiled half of the sampler: prefill, and the loop of decode steps."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.distribution import adjusted_log_probs, draw
from rpg_jax.llm.families import family_of
from rpg_jax.llm.layers import few_rows_product
from rpg_jax.llm.models import is_spec, model_for
from rpg_jax.llm.transformer import Cache, Params, TensorSpec, unstack


class Plan(NamedTuple):
    """Everything about a run that is fixed when it is compiled."""

    length: int  # completion bucket
    samples: int
    greedy: bool
    top_k: int | None
    top_p: bool
    penalty: bool
    few_rows: bool
    dtype: str


class Knobs(NamedTuple):
    """Settings that may change without compiling again."""

    temperature: Float[Array, ""]
    top_p: Float[Array, ""]
    penalty: Float[Array, ""]
    stop_ids: Int[Array, " n"]
    pad_id: Int[Array, ""]
    row_keys: PRNGKeyArray  # [B]
    allowed: Bool[Array, "M V"] | None
    next_state: Int[Array, "M V"] | None
    start: Int[Array, " B"] | None


class State(NamedTuple):
    """What the loop carries."""

    cache: Cache
    t: Int[Array, ""]
    last: Int[Array, " B"]
    done: Bool[Array, " B"]
    broken: Bool[Array, ""]  # logits were not finite
    tokens: Int[Array, "B L"]
    log_probs: Float[Array, "B L"]
    mask: Bool[Array, "B L"]
    present: Bool[Array, "B V"] | None
    grammar: Int[Array, " B"] | None
    states: Int[Array, "B L"] | None


@functools.partial(jax.jit, static_argnames=("config", "plan"))
def prefill(
    params: Params,
    tokens: Int[Array, "P T"] | Int[np.ndarray, "P T"],
    mask: Bool[Array, "P T"] | Bool[np.ndarray, "P T"],
    knobs: Knobs,
    *,
    config: ModelConfig,
    plan: Plan,
) -> State:
    """Read the prompts and sample the first token of every row."""
    model = model_for(config)
    dtype = jnp.dtype(plan.dtype)
    prompts, length = tokens.shape
    cache = model.init_cache(prompts, length + plan.length, dtype)
    hidden, filled = model.forward(
        params, tokens, mask, cache=cache, compute_dtype=dtype
    )
    assert filled is not None  # a cache went in
    cache = filled
    logits = model.logits(params, hidden[:, -1])

    def each(x: Array) -> Array:
        return jnp.repeat(x, plan.samples, axis=0)

    batch = prompts * plan.samples
    layers = [jax.tree.map(each, c) for c in unstack(config, cache.layers)]
    cache = Cache(layers, each(cache.valid), cache.slot, each(cache.number))
    grammar = knobs.allowed is not None
    state = State(
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
def decode_until(
    weights: Params,
    state: State,
    knobs: Knobs,
    limit: Int[Array, ""],
    *,
    config: ModelConfig,
    plan: Plan,
) -> State:
    """Sample until every row is done or has ``limit`` tokens."""
    model = model_for(config)

    def body(state: State) -> State:
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
        assert cache is not None  # a cache went in
        return _emit(state._replace(cache=cache), logits, knobs, plan)

    end: State = jax.lax.while_loop(
        lambda s: (s.t < limit) & ~jnp.all(s.done), body, state
    )
    return end


@functools.partial(jax.jit, static_argnames=("config", "dtype", "transpose"))
def decoding_weights(
    params: Params, *, config: ModelConfig, dtype: str, transpose: bool
) -> Params:
    """The weights as decoding reads them: one tree per layer, in the compute dtype."""
    # Vectors (norms, decays) keep float32; everything larger is a matrix.
    weights: Params = jax.tree.map(
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


def few_rows_on_cpu(params: Params, batch: int) -> bool:
    """Whether products go faster with the weights on the left."""
    embed = params["embed"]
    devices = embed.devices() if isinstance(embed, jax.Array) else jax.devices()
    return next(iter(devices)).platform == "cpu" and 4 <= batch <= 64


def _emit(state: State, logits: Float[Array, "B V"], knobs: Knobs, plan: Plan) -> State:
    """Draw token t of every row that is not done, and write it down."""
    finite = jnp.all(jnp.isfinite(logits) | state.done[:, None])
    allowed = None
    if knobs.allowed is not None and state.grammar is not None:
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

    def write(array: Array, value: Array) -> Array:
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
    if state.present is not None:
        rows = jnp.arange(token.shape[0])
        new = new._replace(present=state.present.at[rows, token].max(live))
    if state.grammar is not None and state.states is not None:
        new = new._replace(states=write(state.states, state.grammar))
        if knobs.next_state is not None:
            following = knobs.next_state[state.grammar, token]
            new = new._replace(grammar=jnp.where(live, following, state.grammar))
    return new
