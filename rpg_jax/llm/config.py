"""Model configurations read from Hugging Face ``config.json`` files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

LINEAR, FULL = "linear_attention", "full_attention"
QWEN3_5_TYPES = ("qwen3_5", "qwen3_5_text")


class ConfigError(ValueError):
    """The checkpoint describes a model that this package cannot run."""


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
    """Dimensions of a Llama-family decoder (Llama, SmolLM2)."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    max_position_embeddings: int = 2048
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: tuple[int, ...] = ()

    model_type = "llama"

    def __post_init__(self) -> None:
        check_dimensions(self)

    @property
    def layer_types(self) -> tuple[str, ...]:
        """Every layer attends to the full sequence."""
        return (FULL,) * self.num_hidden_layers

    @property
    def rotary_dim(self) -> int:
        """Number of leading channels of a head that rotate."""
        return self.head_dim

    @classmethod
    def from_hf_json(cls, raw: Mapping[str, Any]) -> LlamaConfig:
        """Read the dictionary in a Llama ``config.json``.

        Raises:
            ConfigError: a dimension is missing or a feature is not implemented.
        """
        if raw.get("model_type") != "llama":
            raise _wrong_type(raw)
        _reject(raw, ("attention_bias", "mlp_bias"))
        dims = _common(raw)
        heads = dims["num_attention_heads"]
        dims.setdefault("num_key_value_heads", heads)
        dims.setdefault("head_dim", dims["hidden_size"] // heads)
        rope = _rope(raw, default_factor=1.0)
        if rope["partial_rotary_factor"] != 1.0:
            raise ConfigError("partial rotary embeddings are not implemented for Llama")
        return cls(**dims, rope_theta=rope["rope_theta"])

    def to_hf_json(self) -> dict[str, Any]:
        """The ``config.json`` that transformers reads back as the same model."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **_shared_json(self),
            "attention_bias": False,
            "mlp_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
        }


@dataclasses.dataclass(frozen=True)
class Qwen35Config:
    """Dimensions of the text part of a Qwen3.5 model."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    layer_types: tuple[str, ...]
    linear_conv_kernel_dim: int = 4
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    partial_rotary_factor: float = 0.25
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    max_position_embeddings: int = 32_768
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: tuple[int, ...] = ()

    model_type = "qwen3_5_text"

    def __post_init__(self) -> None:
        check_dimensions(self)
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
        if raw.get("model_type") not in QWEN3_5_TYPES:
            raise _wrong_type(raw)
        text = dict(raw.get("text_config", raw))
        if raw["model_type"] == "qwen3_5":
            # The outer switch is the one transformers obeys for the whole model.
            text["tie_word_embeddings"] = raw.get(
                "tie_word_embeddings", text.get("tie_word_embeddings", False)
            )
        _reject(text, ("attention_bias",))
        dims = _common(text)
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
        return cls(**dims, layer_types=tuple(types), **_rope(text, default_factor=0.25))

    def to_hf_json(self) -> dict[str, Any]:
        """The text-only ``config.json`` that transformers reads back."""
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            **_shared_json(self),
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


ModelConfig = Qwen35Config | LlamaConfig


def config_from_hf_json(raw: Mapping[str, Any]) -> ModelConfig:
    """Pick the configuration class by ``model_type`` and read the dictionary.

    Raises:
        ConfigError: unknown architecture, or a setting that is not implemented.
    """
    model_type = raw.get("model_type")
    if model_type in QWEN3_5_TYPES:
        return Qwen35Config.from_hf_json(raw)
    if model_type == "llama":
        return LlamaConfig.from_hf_json(raw)
    raise _wrong_type(raw)


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


def check_dimensions(config: ModelConfig) -> None:
    """Reject shapes that no attention layer could have.

    Raises:
        ConfigError: sizes are not positive or do not divide as they must.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in _DIMENSIONS and value <= 0:
            raise ConfigError(
                f"config.json: {field.name} must be positive, got {value}"
            )
    if config.num_attention_heads % config.num_key_value_heads:
        raise ConfigError(
            f"num_attention_heads={config.num_attention_heads} must be a multiple of "
            f"num_key_value_heads={config.num_key_value_heads}"
        )
    if config.rotary_dim % 2 or not 0 < config.rotary_dim <= config.head_dim:
        raise ConfigError(
            f"rotary size {config.rotary_dim} must be even and within "
            f"head_dim={config.head_dim}"
        )
    if len(config.layer_types) != config.num_hidden_layers:
        raise ConfigError(
            f"layer_types lists {len(config.layer_types)} layers, "
            f"num_hidden_layers is {config.num_hidden_layers}"
        )
    unknown = sorted(set(config.layer_types) - {LINEAR, FULL})
    if unknown:
        raise ConfigError(f"unknown layer types {unknown}: want {LINEAR!r} or {FULL!r}")


_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
_OPTIONAL_INTS = ("num_key_value_heads", "head_dim", "max_position_embeddings")
_DIMENSIONS = (
    *_REQUIRED,
    *_OPTIONAL_INTS,
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)


def _common(raw: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in _REQUIRED if raw.get(name) is None]
    if missing:
        raise ConfigError(f"config.json lacks {', '.join(missing)}")
    if raw.get("hidden_act", "silu") != "silu":
        raise ConfigError(f"hidden_act={raw['hidden_act']!r} is not implemented")
    dims: dict[str, Any] = {name: int(raw[name]) for name in _REQUIRED}
    for name in _OPTIONAL_INTS:
        if raw.get(name) is not None:
            dims[name] = int(raw[name])
    for name in ("rms_norm_eps", "initializer_range"):
        if raw.get(name) is not None:
            dims[name] = float(raw[name])
    dims["tie_word_embeddings"] = bool(raw.get("tie_word_embeddings", False))
    for name in ("pad_token_id", "bos_token_id"):
        dims[name] = raw.get(name)
    eos = raw.get("eos_token_id")
    dims["eos_token_id"] = (
        () if eos is None else (eos,) if isinstance(eos, int) else tuple(eos)
    )
    return dims


def _rope(raw: Mapping[str, Any], *, default_factor: float) -> dict[str, float]:
    nested = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    kind = nested.get("rope_type", nested.get("type", "default"))
    if kind != "default":
        raise ConfigError(
            f"rope_type={kind!r} is not implemented: only 'default' rotary embeddings"
        )
    return {
        "rope_theta": float(
            nested.get("rope_theta", raw.get("rope_theta") or 10_000.0)
        ),
        "partial_rotary_factor": float(
            nested.get(
                "partial_rotary_factor",
                raw.get("partial_rotary_factor", default_factor),
            )
        ),
    }


def _reject(raw: Mapping[str, Any], switches: tuple[str, ...]) -> None:
    for name in switches:
        if raw.get(name):
            raise ConfigError(f"{name}={raw[name]!r} is not implemented")


def _wrong_type(raw: Mapping[str, Any]) -> ConfigError:
    return ConfigError(
        f"unsupported architecture: model_type={raw.get('model_type')!r}, "
        f"architectures={raw.get('architectures')}. Supported model types: "
        f"{', '.join(QWEN3_5_TYPES)}, llama"
    )


def _shared_json(config: ModelConfig) -> dict[str, Any]:
    eos = config.eos_token_id
    return {
        **{name: getattr(config, name) for name in (*_REQUIRED, *_OPTIONAL_INTS)},
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "initializer_range": config.initializer_range,
        "tie_word_embeddings": config.tie_word_embeddings,
        "pad_token_id": config.pad_token_id,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": (None if not eos else eos[0] if len(eos) == 1 else list(eos)),
    }
