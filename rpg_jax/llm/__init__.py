"""Language-model policies: models, weights, sampling and policy-gradient training.

Names load on first use, so that importing the package stays cheap and never imports
transformers or torch.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "config": ("ModelConfig", "ConfigError"),
    "families": ("register_family", "config_from_hf_json"),
    "qwen3_5": ("Qwen35Config",),
    "llama": ("LlamaConfig",),
    "models": ("Model", "model_for", "count_parameters"),
    "weights": ("load_pretrained",),
    "export": ("export_pretrained",),
    "errors": ("CheckpointError",),
    "tokenizer": ("load_tokenizer", "chat_ids", "stop_ids", "decode"),
    "hyper": ("PPOHyper",),
    "batch": ("PPOBatch", "batch_from_completions", "make_batch"),
    "ppo": ("PPO", "PPOState", "make_ppo"),
    "checkpoint": ("Checkpoints", "fingerprint", "ppo_items", "with_ppo_items"),
    "distributed": ("RewardBoard", "Rewards", "initialize", "share_rewards"),
    "sharding": ("make_mesh",),
    "sampling": ("sample", "Completions", "Grammar", "choice_grammar", "left_pad"),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME[name]}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
