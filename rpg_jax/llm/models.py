"""One interface to every model family: ``model_for(config)``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rpg_jax.llm import transformer
from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.families import family_of
from rpg_jax.llm.transformer import Params, TensorSpec


class Model(NamedTuple):
    """Pure functions of one architecture; parameters are nested dictionaries.

    ``forward(params, tokens, mask, *, cache=None, remat=False, compute_dtype=None)``
    returns hidden states [B, T, D] and the new cache; see ``transformer.forward``.
    """

    config: ModelConfig
    init: Callable[..., Params]  # (key, dtype=float32) -> params
    forward: Callable[..., tuple[Array, transformer.Cache | None]]
    head_weight: Callable[[Params], Array]  # params -> [V, D]
    logits: Callable[[Params, Array], Array]  # hidden -> float32 [..., V]
    init_cache: Callable[..., transformer.Cache]  # (batch, length, dtype)
    unstack: Callable[[Params], Params]  # one tree per layer, for decoding


@functools.lru_cache(maxsize=64)
def model_for(config: ModelConfig) -> Model:
    """The functions of the model that ``config`` describes (cached: safe under jit)."""
    family = family_of(config)

    def head_weight(params: Params) -> Float[Array, "V D"]:
        name = "embed" if config.tie_word_embeddings else "lm_head"
        weight: Array = params[name]
        return weight

    def logits(
        params: Params, hidden: Float[Array, "*batch D"]
    ) -> Float[Array, "*batch V"]:
        head = head_weight(params).astype(hidden.dtype)
        return jnp.einsum(
            "...d,vd->...v", hidden, head, preferred_element_type=jnp.float32
        )

    def unstack(params: Params) -> Params:
        return {**params, "layers": transformer.unstack(config, params["layers"])}

    return Model(
        config=config,
        init=functools.partial(init_params, config),
        forward=functools.partial(transformer.forward, config, family),
        head_weight=head_weight,
        logits=logits,
        init_cache=functools.partial(transformer.init_cache, config, family),
        unstack=unstack,
    )


def tensor_specs(config: ModelConfig) -> Params:
    """Specs of every tensor, in the layout of the parameters.

    Stacked layers carry a leading axis in ``shape``; ``name`` is the suffix below
    ``layers.N.``. See ``transformer.map_layers`` for which N sits where.
    """
    family = family_of(config)
    period, blocks, tail = transformer.pattern(config)
    vocab, d = config.vocab_size, config.hidden_size
    specs: Params = {
        "embed": TensorSpec("embed_tokens.weight", (vocab, d), "embedding"),
        "norm": TensorSpec("norm.weight", (d,), family.norm_init),
        "layers": {
            "blocks": {
                str(i): jax.tree.map(
                    lambda s: s._replace(shape=(blocks, *s.shape)),
                    family.layer_specs(config, t),
                    is_leaf=is_spec,
                )
                for i, t in enumerate(period)
            }
        },
    }
    if tail:
        specs["layers"]["tail"] = {
            str(i): family.layer_specs(config, period[i]) for i in range(tail)
        }
    if not config.tie_word_embeddings:
        specs["lm_head"] = TensorSpec("lm_head.weight", (vocab, d), "embedding")
    return specs


def is_spec(x: Any) -> bool:
    """Whether a node of ``tensor_specs`` is a leaf."""
    return isinstance(x, TensorSpec)


def count_parameters(config: ModelConfig) -> int:
    """Number of parameters, from shapes alone."""
    specs = jax.tree.leaves(tensor_specs(config), is_leaf=is_spec)
    return sum(math.prod(s.shape) for s in specs)


def init_params(
    config: ModelConfig, key: PRNGKeyArray, dtype: Any = jnp.float32
) -> Params:
    """Random parameters: matrices in ``dtype``, norms and decay vectors in float32.

    Decays start as in Mamba-2 and Gated DeltaNet (Yang et al. 2024): A uniform in
    (0, 16], step sizes log-uniform in [1e-3, 0.1].
    """
    specs, treedef = jax.tree.flatten(tensor_specs(config), is_leaf=is_spec)
    keys = jax.random.split(key, len(specs))
    leaves = [
        _init_leaf(
            keys[i],
            shape=spec.shape,
            kind=spec.kind,
            dtype=jnp.dtype(dtype),
            scale=config.initializer_range,
        )
        for i, spec in enumerate(specs)
    ]
    params: Params = jax.tree.unflatten(treedef, leaves)
    return params


@functools.partial(jax.jit, static_argnames=("shape", "kind", "dtype", "scale"))
def _init_leaf(
    key: PRNGKeyArray, *, shape: tuple[int, ...], kind: str, dtype: Any, scale: float
) -> Array:
    if kind in ("kernel", "embedding"):
        return (scale * jax.random.normal(key, shape)).astype(dtype)
    if kind == "conv":
        bound = shape[-2] ** -0.5
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound).astype(dtype)
    if kind == "a_log":
        return jnp.log(jax.random.uniform(key, shape, jnp.float32, 0.01, 16.0))
    if kind == "dt_bias":
        low, high = math.log(1e-3), math.log(0.1)
        step = jnp.exp(jax.random.uniform(key, shape, jnp.float32, low, high))
        return step + jnp.log(-jnp.expm1(-step))  # the inverse of softplus
    fill = {"zeros": jnp.zeros, "ones": jnp.ones}[kind]
    return fill(shape, jnp.float32)
