"""What every model configuration has, and how it reads ``config.json``.

A family's own configuration is a subclass in the family's file; the functions here read
and write the settings that all of them share.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

LINEAR, FULL = "linear_attention", "full_attention"


class ConfigError(ValueError):
    """The checkpoint describes a model that this package cannot run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(abc.ABC):
    """Dimensions of a decoder; hashable, so that it is static under jit.

    Attributes:
        head_dim: channels of a head.
        initializer_range: deviation of fresh matrices.
        eos_token_id: ids that end a completion.
        layer_types: kind of every layer, in order; full attention if none are given.
    """

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
    layer_types: tuple[str, ...] = ()

    model_type: ClassVar[str]

    def __post_init__(self) -> None:
        if not self.layer_types:
            kinds = (FULL,) * self.num_hidden_layers
            object.__setattr__(self, "layer_types", kinds)
        check_dimensions(self)

    @property
    def rotary_dim(self) -> int:
        """Number of leading channels of an attention head that rotate."""
        return self.head_dim

    @classmethod
    @abc.abstractmethod
    def from_hf_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the dictionary in a ``config.json``.

        Raises:
            ConfigError: a dimension is missing or a feature is not implemented.
        """

    @abc.abstractmethod
    def to_hf_json(self) -> dict[str, Any]:
        """The ``config.json`` that transformers reads back as the same model."""


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


def common_fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``ModelConfig`` that ``config.json`` has, rotary ones left out.

    Raises:
        ConfigError: a dimension is missing, or an activation is not implemented.
    """
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


def rope_fields(raw: Mapping[str, Any], *, default_factor: float) -> dict[str, Any]:
    """``rope_theta`` and ``partial_rotary_factor``.

    Raises:
        ConfigError: the rotary embedding is scaled.
    """
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


def reject(raw: Mapping[str, Any], switches: tuple[str, ...]) -> None:
    """Refuse settings that are not implemented.

    Raises:
        ConfigError: one of them is on.
    """
    for name in switches:
        if raw.get(name):
            raise ConfigError(f"{name}={raw[name]!r} is not implemented")


def check_type(raw: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse a model of another type.

    Raises:
        ConfigError: ``model_type`` is none of ``known``.
    """
    if raw.get("model_type") not in known:
        raise ConfigError(
            f"unsupported architecture: model_type={raw.get('model_type')!r}, "
            f"architectures={raw.get('architectures')}. Supported model types: "
            f"{', '.join(known)}"
        )


def shared_json(config: ModelConfig) -> dict[str, Any]:
    """The entries of ``config.json`` that every family writes."""
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
