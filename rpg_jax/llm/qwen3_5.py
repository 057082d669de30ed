"""Qwen3.5 text layers: gated DeltaNet and gated full attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rpg_jax.llm.config import (
    FULL,
    LINEAR,
    ConfigError,
    ModelConfig,
    check_type,
    common_fields,
    reject,
    rope_fields,
    shared_json,
)
from rpg_jax.llm.deltanet import delta_chunked, delta_step, l2_normalise
from rpg_jax.llm.layers import apply_rotary, linear, rms_norm, swiglu
from rpg_jax.llm.transformer import (
    Context,
    Family,
    Params,
    TensorSpec,
    cached_attention,
)

MODEL_TYPES = ("qwen3_5", "qwen3_5_text")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Qwen35Config(ModelConfig):
    """Dimensions of the text part of a Qwen3.5 model."""

    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int = 4
    partial_rotary_factor: float = 0.25
    max_position_embeddings: int = 32_768

    model_type: ClassVar[str] = "qwen3_5_text"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.linear_num_value_heads % self.linear_num_key_heads:
            raise ConfigError(
                f"linear_num_value_heads={self.linear_num_value_heads} must be a "
                f"multiple of linear_num_key_heads={self.linear_num_key_heads}"
            )

    @property
    def rotary_dim(self) -> int:
        """Number of leading channels of an attention head that rotate."""
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: queries, keys and values."""
        keys = self.linear_num_key_heads * self.linear_key_head_dim
        return 2 * keys + self.linear_num_value_heads * self.linear_value_head_dim

    @classmethod
    def from_hf_json(cls, raw: Mapping[str, Any]) -> Qwen35Config:
        """Read a Qwen3.5 ``config.json``, multimodal or text only.

        Raises:
            ConfigError: a dimension is missing or a feature is not implemented.
        """
        check_type(raw, MODEL_TYPES)
        text = dict(raw.get("text_config", raw))
        if raw["model_type"] == "qwen3_5":
            # The outer switch is the one transformers obeys for the whole model.
            text["tie_word_embeddings"] = raw.get(
                "tie_word_embeddings", text.get("tie_word_embeddings", False)
            )
        reject(text, ("attention_bias",))
        dims = common_fields(text)
        for name, default in (
            ("num_key_value_heads", 4),
            ("head_dim", 256),
            ("linear_num_key_heads", 16),
            ("linear_num_value_heads", 32),
            ("linear_key_head_dim", 128),
            ("linear_value_head_dim", 128),
            ("linear_conv_kernel_dim", 4),
        ):
            dims[name] = int(text.get(name, default))
        depth = dims["num_hidden_layers"]
        interval = int(text.get("full_attention_interval") or 4)
        types = text.get("layer_types") or [
            FULL if (i + 1) % interval == 0 else LINEAR for i in range(depth)
        ]
        rope = rope_fields(text, default_factor=0.25)
        return cls(**dims, **rope, layer_types=tuple(types))

    def to_hf_json(self) -> dict[str, Any]:
        """The text-only ``config.json`` that transformers reads back."""
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            **shared_json(self),
            "attention_bias": False,
            "linear_num_key_heads": self.linear_num_key_heads,
            "linear_num_value_heads": self.linear_num_value_heads,
            "linear_key_head_dim": self.linear_key_head_dim,
            "linear_value_head_dim": self.linear_value_head_dim,
            "linear_conv_kernel_dim": self.linear_conv_kernel_dim,
            "layer_types": list(self.layer_types),
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": self.partial_rotary_factor,
            },
        }


def qwen3_5_4b() -> Qwen35Config:
    """The published Qwen3.5-4B text dimensions (4,205,751,296 parameters)."""
    return Qwen35Config.from_hf_json(
        {
            "model_type": "qwen3_5_text",
            "vocab_size": 248_320,
            "hidden_size": 2560,
            "intermediate_size": 9216,
            "num_hidden_layers": 32,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
            "eos_token_id": 248_044,
        }
    )


def layer_specs(config: Qwen35Config, layer_type: str) -> Params:
    """Names, shapes and kinds of the tensors of one layer."""
    d, f = config.hidden_size, config.intermediate_size
    specs: Params = {
        "input_layernorm": TensorSpec("input_layernorm.weight", (d,), "zeros"),
        "post_attention_layernorm": TensorSpec(
            "post_attention_layernorm.weight", (d,), "zeros"
        ),
        "mlp": {
            "gate_proj": TensorSpec("mlp.gate_proj.weight", (d, f), "kernel"),
            "up_proj": TensorSpec("mlp.up_proj.weight", (d, f), "kernel"),
            "down_proj": TensorSpec("mlp.down_proj.weight", (f, d), "kernel"),
        },
    }
    if layer_type == LINEAR:
        heads = config.linear_num_value_heads
        values = heads * config.linear_value_head_dim
        width = config.linear_conv_kernel_dim
        shapes = {
            "in_proj_qkv": ((d, config.conv_dim), "kernel"),
            "in_proj_z": ((d, values), "kernel"),
            "in_proj_b": ((d, heads), "kernel"),
            "in_proj_a": ((d, heads), "kernel"),
            "conv1d": ((width, config.conv_dim), "conv"),
            "A_log": ((heads,), "a_log"),
            "dt_bias": ((heads,), "dt_bias"),
            "norm": ((config.linear_value_head_dim,), "ones"),
            "out_proj": ((values, d), "kernel"),
        }
        group = "linear_attn"
    else:
        q = config.num_attention_heads * config.head_dim
        kv = config.num_key_value_heads * config.head_dim
        shapes = {
            "q_proj": ((d, 2 * q), "kernel"),
            "k_proj": ((d, kv), "kernel"),
            "v_proj": ((d, kv), "kernel"),
            "o_proj": ((q, d), "kernel"),
            "q_norm": ((config.head_dim,), "zeros"),
            "k_norm": ((config.head_dim,), "zeros"),
        }
        group = "self_attn"
    bare = ("A_log", "dt_bias")
    specs[group] = {
        name: TensorSpec(
            f"{group}.{name}" + ("" if name in bare else ".weight"), shape, kind
        )
        for name, (shape, kind) in shapes.items()
    }
    return specs


def layer(
    config: Qwen35Config,
    layer_type: str,
    p: Params,
    x: Float[Array, "B T D"],
    cache: Any,
    context: Context,
) -> tuple[Float[Array, "B T D"], Any]:
    """x + mixer(norm(x)), then x + mlp(norm(x)); norms scale by 1 + weight."""
    h = rms_norm(x, p["input_layernorm"], eps=config.rms_norm_eps, offset=1.0)
    if layer_type == LINEAR:
        mixed, cache = _delta_net(config, p["linear_attn"], h, cache, context)
    else:
        mixed, cache = _gated_attention(config, p["self_attn"], h, cache, context)
    x = x + mixed
    h = rms_norm(x, p["post_attention_layernorm"], eps=config.rms_norm_eps, offset=1.0)
    return x + swiglu(h, p["mlp"]), cache


def layer_cache(
    config: Qwen35Config, layer_type: str, batch: int, length: int, dtype: Any
) -> dict[str, Array]:
    """Window and state of a DeltaNet layer, keys and values of an attention layer."""
    if layer_type == LINEAR:
        window = config.linear_conv_kernel_dim - 1
        keys = config.linear_num_key_heads
        shared = config.linear_num_value_heads // keys
        sizes = (config.linear_key_head_dim, config.linear_value_head_dim)
        return {
            "conv": jnp.zeros((batch, window, config.conv_dim), dtype),
            "state": jnp.zeros((batch, keys, shared, *sizes), jnp.float32),
        }
    shape = (batch, config.num_key_value_heads, length, config.head_dim)
    return {"k": jnp.zeros(shape, dtype), "v": jnp.zeros(shape, dtype)}


def _delta_net(
    config: Qwen35Config,
    p: Params,
    x: Float[Array, "B T D"],
    cache: Any,
    context: Context,
) -> tuple[Float[Array, "B T D"], Any]:
    batch, length, _ = x.shape
    keys = config.linear_num_key_heads
    shared = config.linear_num_value_heads // keys
    dk, dv = config.linear_key_head_dim, config.linear_value_head_dim
    mask = context.mask

    # Pads must leave no trace: nothing enters the window, the state neither decays
    # nor is written to (q, k, v are zero there because the convolution has no bias,
    # except within its width of a real token, hence the second mask on k).
    qkv = jnp.where(mask[..., None], linear(x, p["in_proj_qkv"]), 0)
    qkv, window = _causal_conv(qkv, p["conv1d"], None if cache is None else cache)
    qkv = jax.nn.silu(qkv).astype(jnp.float32)
    q, k, v = jnp.split(qkv, (keys * dk, 2 * keys * dk), axis=-1)
    q = l2_normalise(q.reshape(batch, length, keys, dk)) * dk**-0.5
    k = l2_normalise(k.reshape(batch, length, keys, dk))
    k = jnp.where(mask[..., None, None], k, 0.0)
    v = v.reshape(batch, length, keys, shared, dv)

    beta = jax.nn.sigmoid(linear(x, p["in_proj_b"]).astype(jnp.float32))
    step = jax.nn.softplus(
        linear(x, p["in_proj_a"]).astype(jnp.float32)
        + p["dt_bias"].astype(jnp.float32)[None, None, :]
    )
    g = -jnp.exp(p["A_log"].astype(jnp.float32))[None, None, :] * step
    beta, g = (
        jnp.where(mask[..., None], y, 0.0).reshape(batch, length, keys, shared)
        for y in (beta, g)
    )

    if cache is None:
        state = jnp.zeros((batch, keys, shared, dk, dv), jnp.float32)
    else:
        state = cache["state"]
    if length == 1:
        state, out = delta_step(state, q[:, 0], k[:, 0], v[:, 0], g[:, 0], beta[:, 0])
        out = out[:, None]
    else:
        state, out = delta_chunked(state, q, k, v, g, beta)

    out = out.reshape(batch, length, keys * shared, dv)
    z = linear(x, p["in_proj_z"]).reshape(out.shape)
    out = rms_norm(out, p["norm"], eps=config.rms_norm_eps)
    out = out * jax.nn.silu(z.astype(jnp.float32))
    out = out.reshape(batch, length, -1).astype(x.dtype)
    new = None if cache is None else {"conv": window, "state": state}
    return linear(out, p["out_proj"]), new


def _causal_conv(
    x: Float[Array, "B T C"], kernel: Float[Array, "W C"], cache: Any
) -> tuple[Float[Array, "B T C"], Float[Array, "B W-1 C"]]:
    """Depthwise y_t = sum_w kernel_w x_{t-W+1+w}; also the last W - 1 inputs."""
    width, length = kernel.shape[0], x.shape[1]
    if cache is None:
        before = jnp.zeros((x.shape[0], width - 1, x.shape[2]), x.dtype)
    else:
        before = cache["conv"].astype(x.dtype)
    padded = jnp.concatenate([before, x], axis=1)
    taps = kernel.astype(x.dtype)[:, None, None, :]
    terms = (padded[:, w : w + length] * taps[w] for w in range(width))
    out = sum(terms, start=jnp.zeros((), x.dtype))
    window = padded[:, length:]
    return out, window if cache is None else window.astype(cache["conv"].dtype)


def _gated_attention(
    config: Qwen35Config,
    p: Params,
    x: Float[Array, "B T D"],
    cache: Any,
    context: Context,
) -> tuple[Float[Array, "B T D"], Any]:
    batch, length, _ = x.shape
    heads, dim = config.num_attention_heads, config.head_dim
    groups = config.num_key_value_heads
    both = linear(x, p["q_proj"]).reshape(batch, length, heads, 2 * dim)
    q, gate = both[..., :dim], both[..., dim:]
    k = linear(x, p["k_proj"]).reshape(batch, length, groups, dim)
    v = linear(x, p["v_proj"]).reshape(batch, length, groups, dim)
    q = rms_norm(q, p["q_norm"], eps=config.rms_norm_eps, offset=1.0)
    k = rms_norm(k, p["k_norm"], eps=config.rms_norm_eps, offset=1.0)
    q = apply_rotary(q, context.cos, context.sin)
    k = apply_rotary(k, context.cos, context.sin)
    out, cache = cached_attention(q, k, v, cache, context)
    out = out * jax.nn.sigmoid(gate.astype(jnp.float32)).astype(out.dtype)
    return linear(out.reshape(batch, length, -1), p["o_proj"]), cache


def _final_norm(config: Qwen35Config, x: Array, weight: Array) -> Array:
    return rms_norm(x, weight, eps=config.rms_norm_eps, offset=1.0)


FAMILY = Family(
    config=Qwen35Config,
    model_types=MODEL_TYPES,
    layer_specs=layer_specs,
    layer=layer,
    layer_cache=layer_cache,
    final_norm=_final_norm,
    norm_init="zeros",
    prefixes=("model.", "model.language_model."),
    ignored=("model.visual.", "visual.", "mtp."),
)
