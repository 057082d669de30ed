"""Llama-family layers (Llama, SmolLM2): grouped attention and SwiGLU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rpg_jax.llm.config import LlamaConfig
from rpg_jax.llm.layers import apply_rotary, linear, rms_norm, swiglu
from rpg_jax.llm.transformer import (
    Context,
    Family,
    Params,
    TensorSpec,
    cached_attention,
)


def layer_specs(config: LlamaConfig, layer_type: str) -> Params:
    """Names, shapes and kinds of the tensors of one layer."""
    del layer_type
    d, f = config.hidden_size, config.intermediate_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim

    def kernels(group: str, shapes: dict[str, tuple[int, int]]) -> Params:
        return {
            name: TensorSpec(f"{group}.{name}.weight", shape, "kernel")
            for name, shape in shapes.items()
        }

    return {
        "input_layernorm": TensorSpec("input_layernorm.weight", (d,), "ones"),
        "post_attention_layernorm": TensorSpec(
            "post_attention_layernorm.weight", (d,), "ones"
        ),
        "self_attn": kernels(
            "self_attn",
            {"q_proj": (d, q), "k_proj": (d, kv), "v_proj": (d, kv), "o_proj": (q, d)},
        ),
        "mlp": kernels(
            "mlp", {"gate_proj": (d, f), "up_proj": (d, f), "down_proj": (f, d)}
        ),
    }


def layer(
    config: LlamaConfig,
    layer_type: str,
    p: Params,
    x: jax.Array,
    cache: Any,
    context: Context,
) -> tuple[jax.Array, Any]:
    """x + attention(norm(x)), then x + mlp(norm(x))."""
    del layer_type
    batch, length, _ = x.shape
    attn = p["self_attn"]
    h = rms_norm(x, p["input_layernorm"], eps=config.rms_norm_eps)
    q, k, v = (
        linear(h, attn[name]).reshape(batch, length, heads, config.head_dim)
        for name, heads in (
            ("q_proj", config.num_attention_heads),
            ("k_proj", config.num_key_value_heads),
            ("v_proj", config.num_key_value_heads),
        )
    )
    q = apply_rotary(q, context.cos, context.sin)
    k = apply_rotary(k, context.cos, context.sin)
    out, cache = cached_attention(q, k, v, cache, context)
    x = x + linear(out.reshape(batch, length, -1), attn["o_proj"])
    h = rms_norm(x, p["post_attention_layernorm"], eps=config.rms_norm_eps)
    return x + swiglu(h, p["mlp"]), cache


def layer_cache(
    config: LlamaConfig, layer_type: str, batch: int, length: int, dtype: Any
) -> dict[str, jax.Array]:
    """Keys and values of one layer."""
    del layer_type
    shape = (batch, config.num_key_value_heads, length, config.head_dim)
    return {"k": jnp.zeros(shape, dtype), "v": jnp.zeros(shape, dtype)}


def _final_norm(config: LlamaConfig, x: jax.Array, weight: jax.Array) -> jax.Array:
    return rms_norm(x, weight, eps=config.rms_norm_eps)


FAMILY = Family(
    layer_specs=layer_specs,
    layer=layer,
    layer_cache=layer_cache,
    final_norm=_final_norm,
    norm_init="ones",
    prefixes=("model.",),
    ignored=(),
)
