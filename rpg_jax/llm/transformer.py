"""The decoder skeleton that every family shares: embed, scan the layers, norm.

Layers are stacked and scanned by their repeating pattern (three DeltaNet layers and one
of attention for Qwen3.5), so that compile time does not grow with depth; layers beyond
the last whole period form a tail. ``unstack`` gives the same weights as one tree per
layer, which is what decoding wants: no slicing of stacked weights in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.layers import attention, rotary_tables

Params = dict[str, Any]


class Cache(NamedTuple):
    """What decoding remembers; one write slot for the whole batch."""

    layers: Any  # per layer: keys and values, or convolution window and state
    valid: jax.Array  # bool [B, S]: slots that hold a real token
    slot: jax.Array  # int32 []: next slot to write
    count: jax.Array  # int32 [B]: real tokens so far, the next rotary position


class Context(NamedTuple):
    """What every layer of one forward pass shares."""

    mask: jax.Array  # bool [B, T]
    cos: jax.Array
    sin: jax.Array
    allowed: jax.Array  # bool [B, T, S]
    slot: jax.Array | None


class Family(NamedTuple):
    """What a model family adds to the skeleton."""

    # (config, layer type) -> nested dict of TensorSpec
    layer_specs: Callable[[Any, str], Params]
    # (config, layer type, params, x, cache or None, context) -> (x, cache)
    layer: Callable[..., tuple[jax.Array, Any]]
    # (config, layer type, batch, length, dtype) -> cache of one layer
    layer_cache: Callable[..., Any]
    final_norm: Callable[[Any, jax.Array, jax.Array], jax.Array]
    norm_init: str
    # prefixes under which checkpoints store the tensors, the first is ours
    prefixes: tuple[str, ...]
    # tensors of other parts of the model, ignored by name
    ignored: tuple[str, ...]


class TensorSpec(NamedTuple):
    """One tensor: its Hugging Face name below the prefix, our shape, its kind.

    Kinds: ``kernel`` (stored transposed by Hugging Face), ``embedding``, ``conv``
    (stored as [channels, 1, width]), ``zeros``, ``ones``, ``a_log``, ``dt_bias``.
    """

    name: str
    shape: tuple[int, ...]
    kind: str


MATRIX_KINDS = ("kernel", "embedding", "conv")


def pattern(config: ModelConfig) -> tuple[tuple[str, ...], int, int]:
    """(layer types of one period, number of whole periods, layers in the tail)."""
    types = config.layer_types
    depth = len(types)
    period = next(
        p
        for p in range(1, depth + 1)
        if all(types[i] == types[i % p] for i in range(depth))
    )
    return types[:period], depth // period, depth % period


def map_layers(config: ModelConfig, tree: Any) -> list[tuple[str, Any, int | None]]:
    """Place of every layer in a stacked tree: (group key, position, index or None)."""
    period, blocks, tail = pattern(config)
    places: list[tuple[str, Any, int | None]] = [
        ("blocks", str(i), n) for n in range(blocks) for i in range(len(period))
    ]
    return places + [("tail", str(i), None) for i in range(tail)]


def unstack(config: ModelConfig, layers: Any) -> list[Any]:
    """Stacked layers -> one tree per layer, in order (a no-op on such a list)."""
    if isinstance(layers, (list, tuple)):
        return list(layers)
    out = []
    for group, position, index in map_layers(config, layers):
        tree = layers[group][position]
        if index is not None:
            tree = jax.tree.map(lambda x, i=index: x[i], tree)
        out.append(tree)
    return out


def init_cache(
    config: ModelConfig, family: Family, batch: int, length: int, dtype: Any
) -> Cache:
    """An empty cache for ``length`` slots, laid out like the stacked parameters."""
    period, blocks, tail = pattern(config)

    def one(layer_type):
        return family.layer_cache(config, layer_type, batch, length, dtype)

    layers: Params = {
        "blocks": {
            str(i): jax.tree.map(
                lambda x: jnp.zeros((blocks, *x.shape), x.dtype),
                jax.eval_shape(lambda t=t: one(t)),
            )
            for i, t in enumerate(period)
        }
    }
    if tail:
        layers["tail"] = {str(i): one(period[i]) for i in range(tail)}
    return Cache(
        layers=layers,
        valid=jnp.zeros((batch, length), jnp.bool_),
        slot=jnp.zeros((), jnp.int32),
        count=jnp.zeros((batch,), jnp.int32),
    )


def forward(
    config: ModelConfig,
    family: Family,
    params: Params,
    tokens: jax.Array,
    mask: jax.Array,
    *,
    cache: Cache | None = None,
    remat: bool = False,
    compute_dtype: Any = None,
) -> tuple[jax.Array, Cache | None]:
    """Hidden states after the final norm, and the cache after these tokens.

    Args:
        tokens: ids [B, T]. Pad on the left: real tokens of a row must be contiguous.
        mask: bool [B, T], True at real tokens.
        cache: what came before; ``None`` starts fresh and returns ``None``.
        remat: recompute each layer in the backward pass instead of storing it.
        compute_dtype: dtype of the matrix products; that of the embedding by default.

    Returns:
        Hidden states [B, T, D] (finite and meaningless where ``mask`` is False).
    """
    dtype = jnp.dtype(compute_dtype or params["embed"].dtype)
    x = jnp.take(params["embed"], tokens, axis=0).astype(dtype)
    context, after = _context(config, mask, cache)

    def layer(layer_type, p, y, c, ctx):
        return family.layer(config, layer_type, p, y, c, ctx)

    if remat:
        layer = jax.checkpoint(layer, static_argnums=(0,), prevent_cse=False)

    layers = params["layers"]
    cached = None if cache is None else cache.layers
    if isinstance(layers, (list, tuple)):
        new: Any = []
        kept = [None] * len(layers) if cached is None else unstack(config, cached)
        for layer_type, p, c in zip(config.layer_types, layers, kept, strict=True):
            x, c = layer(layer_type, p, x, c, context)
            new.append(c)
    else:
        period, _, tail = pattern(config)

        def block(y, xs):
            p, c = xs
            out = {}
            for i, layer_type in enumerate(period):
                i = str(i)
                y, out[i] = layer(
                    layer_type, p[i], y, None if c is None else c[i], context
                )
            return y, out

        kept = None if cached is None else cached["blocks"]
        x, blocks = jax.lax.scan(block, x, (layers["blocks"], kept))
        new = {"blocks": blocks}
        if tail:
            new["tail"] = {}
            for i in range(tail):
                c = None if cached is None else cached["tail"][str(i)]
                x, new["tail"][str(i)] = layer(
                    period[i], layers["tail"][str(i)], x, c, context
                )
    x = family.final_norm(config, x, params["norm"])
    return x, None if cache is None else after._replace(layers=new)


def cached_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, cache: Any, context: Context
) -> tuple[jax.Array, Any]:
    """Attention over these tokens and the cache; q, k, v are [B, T, heads, d]."""
    k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
    if cache is not None:
        k, v = (
            jax.lax.dynamic_update_slice_in_dim(
                old, new.astype(old.dtype), context.slot, axis=2
            )
            for old, new in ((cache["k"], k), (cache["v"], v))
        )
        cache = {"k": k, "v": v}
        k, v = k.astype(q.dtype), v.astype(q.dtype)
    return attention(q, k, v, context.allowed), cache


def _context(
    config: ModelConfig, mask: jax.Array, cache: Cache | None
) -> tuple[Context, Cache | None]:
    length = mask.shape[1]
    before = jnp.cumsum(mask.astype(jnp.int32), axis=1)
    if cache is None:
        positions = jnp.maximum(before - 1, 0)
        index = jnp.arange(length)
        causal = index[:, None] >= index[None, :]
        allowed = causal[None] & mask[:, None, :]
        slot, after = None, None
    else:
        positions = jnp.maximum(cache.count[:, None] + before - 1, 0)
        valid = jax.lax.dynamic_update_slice_in_dim(
            cache.valid, mask, cache.slot, axis=1
        )
        slots = jnp.arange(valid.shape[1])
        causal = slots[None, :] <= cache.slot + jnp.arange(length)[:, None]
        allowed = causal[None] & valid[:, None, :]
        slot = cache.slot
        after = Cache(None, valid, slot + length, cache.count + before[:, -1])
    cos, sin = rotary_tables(positions, config.rotary_dim, config.rope_theta)
    return Context(mask, cos, sin, allowed, slot), after
