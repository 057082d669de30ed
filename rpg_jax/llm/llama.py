"""Llama-family layers (Llama, SmolLM2): grouped attention and SwiGLU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from rpg_jax.llm.config import (
    ConfigError,
    ModelConfig,
    check_type,
    common_fields,
    reject,
    rope_fields,
    shared_json,
)
from rpg_jax.llm.layers import apply_rotary, linear, rms_norm, swiglu
from rpg_jax.llm.transformer import (
    Context,
    Family,
    Params,
    TensorSpec,
    cached_attention,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LlamaConfig(ModelConfig):
    """Dimensions of a Llama-family decoder (Llama, SmolLM2)."""

    model_type: ClassVar[str] = "llama"

    @classmethod
    def from_hf_json(cls, raw: Mapping[str, Any]) -> LlamaConfig:
        """Read the dictionary in a Llama ``config.json``.

        Raises:
            ConfigError: a dimension is missing or a feature is not implemented.
        """
        check_type(raw, ("llama",))
        reject(raw, ("attention_bias", "mlp_bias"))
        dims = common_fields(raw)
        heads = dims["num_attention_heads"]
        dims.setdefault("num_key_value_heads", heads)
        dims.setdefault("head_dim", dims["hidden_size"] // heads)
        rope = rope_fields(raw, default_factor=1.0)
        if rope["partial_rotary_factor"] != 1.0:
            raise ConfigError("partial rotary embeddings are not implemented for Llama")
        return cls(**dims, rope_theta=rope["rope_theta"])

    def to_hf_json(self) -> dict[str, Any]:
        """The ``config.json`` that transformers reads back as the same model."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **shared_json(self),
            "attention_bias": False,
            "mlp_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
        }


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
    x: Float[Array, "B T D"],
    cache: Any,
    context: Context,
) -> tuple[Float[Array, "B T D"], Any]:
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
) -> dict[str, Array]:
    """Keys and values of one layer."""
    del layer_type
    shape = (batch, config.num_key_value_heads, length, config.head_dim)
    return {"k": jnp.zeros(shape, dtype), "v": jnp.zeros(shape, dtype)}


def _final_norm(config: LlamaConfig, x: Array, weight: Array) -> Array:
    return rms_norm(x, weight, eps=config.rms_norm_eps)


FAMILY = Family(
    config=LlamaConfig,
    model_types=("llama",),
    layer_specs=layer_specs,
    layer=layer,
    layer_cache=layer_cache,
    final_norm=_final_norm,
    norm_init="ones",
    prefixes=("model.",),
    ignored=(),
)
