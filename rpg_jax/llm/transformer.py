"""The decoder skeleton that every family shares: embed, scan the layers, norm.

Layers are stacked and scanned by their repeating pattern (three DeltaNet layers and one
of attention for Qwen3.5), so that compile time does not grow with depth; layers beyond
the last whole period form a tail. ``unstack`` gives the same weights as one tree per
layer, which is what decoding wants: no slicing of stacked weights in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.layers import attention, rotary_tables

Params = dict[str, Any]


class Cache(NamedTuple):
    """What decoding remembers; one write slot for the whole batch."""

    layers: Any  # per layer: keys and values, or convolution window and state
    valid: Bool[Array, "B S"]  # slots that hold a real token
    slot: Int[Array, ""]  # next slot to write
    number: Int[Array, " B"]  # of real tokens so far: the next rotary position


class Context(NamedTuple):
    """What every layer of one forward pass shares."""

    mask: Bool[Array, "B T"]
    cos: Float[Array, "B T half"]
    sin: Float[Array, "B T half"]
    allowed: Bool[Array, "B T S"]
    slot: Int[Array, ""] | None  # where a cache is written; None without one


class Family(NamedTuple):
    """What a model family adds to the skeleton; see ``families.register_family``."""

    config: type[ModelConfig]
    # values of ``model_type`` in the files that it reads
    model_types: tuple[str, ...]
    # (config, layer type) -> nested dict of TensorSpec
    layer_specs: Callable[[Any, str], Params]
    # (config, layer type, params, x, cache or None, context) -> (x, cache)
    layer: Callable[..., tuple[Array, Any]]
    # (config, layer type, batch, length, dtype) -> cache of one layer
    layer_cache: Callable[..., Any]
    final_norm: Callable[[Any, Array, Array], Array]
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

    def one(layer_type: str) -> Any:
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
        number=jnp.zeros((batch,), jnp.int32),
    )


def forward(
    config: ModelConfig,
    family: Family,
    params: Params,
    tokens: Int[Array, "B T"],
    mask: Bool[Array, "B T"],
    *,
    cache: Cache | None = None,
    remat: bool = False,
    compute_dtype: Any = None,
) -> tuple[Float[Array, "B T D"], Cache | None]:
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
    chex.assert_rank(tokens, 2)
    chex.assert_equal_shape([tokens, mask])
    dtype = jnp.dtype(compute_dtype or params["embed"].dtype)
    x = jnp.take(params["embed"], tokens, axis=0).astype(dtype)
    context, after = _context(config, mask, cache)

    def layer(
        kind: str, p: Params, y: Array, c: Any, ctx: Context
    ) -> tuple[Array, Any]:
        return family.layer(config, kind, p, y, c, ctx)

    if remat:
        layer = jax.checkpoint(layer, static_argnums=(0,), prevent_cse=False)

    cached = None if cache is None else cache.layers
    walk = _one_by_one if isinstance(params["layers"], (list, tuple)) else _scanned
    x, new = walk(config, layer, params["layers"], x, cached, context)
    x = family.final_norm(config, x, params["norm"])
    return x, None if after is None else after._replace(layers=new)


# (layer type, params, x, cache or None, context) -> (x, cache)
Layer = Callable[[str, Params, Array, Any, Context], tuple[Array, Any]]


def _one_by_one(
    config: ModelConfig,
    layer: Layer,
    layers: Any,
    x: Float[Array, "B T D"],
    cached: Any,
    context: Context,
) -> tuple[Float[Array, "B T D"], list[Any]]:
    """Layers that are a list, as decoding has them."""
    new = []
    kept = [None] * len(layers) if cached is None else unstack(config, cached)
    for layer_type, p, c in zip(config.layer_types, layers, kept, strict=True):
        x, c = layer(layer_type, p, x, c, context)
        new.append(c)
    return x, new


def _scanned(
    config: ModelConfig,
    layer: Layer,
    layers: Any,
    x: Float[Array, "B T D"],
    cached: Any,
    context: Context,
) -> tuple[Float[Array, "B T D"], dict[str, Any]]:
    """Stacked layers: a scan over whole periods, then the tail."""
    period, _, tail = pattern(config)

    def block(y: Array, xs: Any) -> tuple[Array, dict[str, Any]]:
        p, c = xs
        out = {}
        for i, layer_type in enumerate(period):
            n = str(i)
            y, out[n] = layer(layer_type, p[n], y, None if c is None else c[n], context)
        return y, out

    kept = None if cached is None else cached["blocks"]
    x, blocks = jax.lax.scan(block, x, (layers["blocks"], kept))
    new: dict[str, Any] = {"blocks": blocks}
    if tail:
        new["tail"] = {}
        for i in range(tail):
            n = str(i)
            c = None if cached is None else cached["tail"][n]
            x, new["tail"][n] = layer(period[i], layers["tail"][n], x, c, context)
    return x, new


def cached_attention(
    q: Float[Array, "B T H d"],
    k: Float[Array, "B T K d"],
    v: Float[Array, "B T K d"],
    cache: Any,
    context: Context,
) -> tuple[Float[Array, "B T H d"], Any]:
    """Attention over these tokens and the cache."""
    k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
    if cache is not None and context.slot is not None:
        slot = context.slot
        k, v = (
            jax.lax.dynamic_update_slice_in_dim(
                old, new.astype(old.dtype), slot, axis=2
            )
            for old, new in ((cache["k"], k), (cache["v"], v))
        )
        cache = {"k": k, "v": v}
        k, v = k.astype(q.dtype), v.astype(q.dtype)
    return attention(q, k, v, context.allowed), cache


def _context(
    config: ModelConfig, mask: Bool[Array, "B T"], cache: Cache | None
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
        positions = jnp.maximum(cache.number[:, None] + before - 1, 0)
        valid = jax.lax.dynamic_update_slice_in_dim(
            cache.valid, mask, cache.slot, axis=1
        )
        slots = jnp.arange(valid.shape[1])
        causal = slots[None, :] <= cache.slot + jnp.arange(length)[:, None]
        allowed = causal[None] & valid[:, None, :]
        slot = cache.slot
        after = Cache(None, valid, slot + length, cache.number + before[:, -1])
    cos, sin = rotary_tables(positions, config.rotary_dim, config.rope_theta)
    return Context(mask, cos, sin, allowed, slot), after
