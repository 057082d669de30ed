"""The embedded policy's model: its sizes, its temperature, its folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from experiments.teaching.tokenizer import save
from rpg_jax.llm import export_pretrained
from rpg_jax.llm.config import FULL
from rpg_jax.llm.embedded import SUMS, embedded_folder
from rpg_jax.llm.qwen3_5 import Qwen35Config


class TrainingError(RuntimeError):
    """Training cannot go on; the message is one line."""


def tiny_config(
    vocabulary: int, *, width: int = 256, depth: int = 4, hidden: int = 640
) -> Qwen35Config:
    """Qwen3.5's architecture at the size of a laptop: every layer attends.

    An edit changes what the prompt shows, so the model must look it up; at this size
    layers that attend do that better than recurrent ones, and a prompt of a hundred
    tokens is not expensive to attend to.
    """
    types = (FULL,) * depth
    return Qwen35Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=depth,
        num_attention_heads=max(width // 64, 1),
        num_key_value_heads=max(width // 128, 1),
        head_dim=min(64, width),
        linear_num_key_heads=max(width // 128, 1),
        linear_num_value_heads=max(width // 128, 1),
        linear_key_head_dim=min(64, width),
        linear_value_head_dim=min(64, width),
        layer_types=types,
        partial_rotary_factor=0.5,
        tie_word_embeddings=True,
        max_position_embeddings=1024,
        pad_token_id=0,
        eos_token_id=(2,),
    )


def export_model(
    folder: Path, config: Qwen35Config, params: Any, tokenizer: Any
) -> Path:
    """Write weights, config.json, tokenizer and SHA256SUMS: what ``--model`` reads."""
    export_pretrained(folder, config, params, overwrite=True)
    save(tokenizer, folder)
    write_sums(folder)
    return folder


def write_sums(folder: Path) -> Path:
    """SHA256SUMS of a model's files, as sha256sum writes it; its card is not one."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.name != SUMS and path.suffix != ".md" and path.is_file()
    ]
    path = folder / SUMS
    path.write_text("".join(lines), encoding="utf-8")
    return path


def start_model(name: str) -> Path:
    """The model folder of a finished run, or ``tiny``, the embedded policy's.

    Raises:
        TrainingError: there is no such model.
        CheckpointError: the embedded policy is damaged.
    """
    folder = embedded_folder() if name == "tiny" else Path(name) / "model"
    if not (folder / SUMS).is_file():
        raise TrainingError(f"{name} is no finished run of experiments.pretrain")
    return folder


def start_digest(model: Path) -> str:
    """Names the weights in a model folder."""
    return hashlib.sha256((model / SUMS).read_bytes()).hexdigest()
