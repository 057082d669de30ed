"""Configurations of public models by name: shapes without weights.

``random:NAME`` loads fresh weights of such a shape, for memory plans and performance
runs; nothing is learned from their scores.

Source: the models' ``config.json`` on the Hugging Face hub (Qwen/Qwen3.5-*).
"""

from __future__ import annotations

from typing import Any

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.families import config_from_hf_json

RANDOM = "random:"

_QWEN3_5: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "vocab_size": 248_320,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
    },
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262_144,
    "eos_token_id": 248_044,
}
# hidden, feed-forward, layers, heads, key-value heads, linear value heads, tied
_SIZES: dict[str, tuple[int, int, int, int, int, int, bool]] = {
    "Qwen3.5-0.8B": (1024, 3584, 24, 8, 2, 16, True),
    "Qwen3.5-2B": (2048, 6144, 24, 8, 2, 16, True),
    "Qwen3.5-4B": (2560, 9216, 32, 16, 4, 32, True),
    "Qwen3.5-9B": (4096, 12_288, 32, 16, 4, 32, False),
}
NAMES = tuple(_SIZES)


def known_config(name: str) -> ModelConfig:
    """The configuration of a public model.

    Args:
        name: such as ``Qwen3.5-4B``; an owner before it (``Qwen/``) may stand there.

    Raises:
        CheckpointError: it is not known here; lists those that are.
    """
    short = name.rpartition("/")[2]
    if short not in _SIZES:
        raise CheckpointError(
            f"no model {name!r} is known without its files: {', '.join(NAMES)}; or "
            "give a model folder"
        )
    hidden, inner, layers, heads, kv_heads, value_heads, tied = _SIZES[short]
    return config_from_hf_json(
        _QWEN3_5
        | {
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "linear_num_value_heads": value_heads,
            "tie_word_embeddings": tied,
        }
    )
