"""Read Llama-family models from GGUF files (weights are dequantised to float32)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rpg_jax.llm.config import ConfigError
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.llama import LlamaConfig

# GGUF name below "blk.N." of every tensor of a layer.
_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def open_gguf(path: Path) -> Any:
    """A ``gguf.GGUFReader``.

    Raises:
        CheckpointError: the package is missing, or the file is damaged.
    """
    try:
        import gguf
    except ImportError as error:
        raise CheckpointError(
            "reading GGUF files needs the gguf package: pip install rpg-jax[llm]"
        ) from error
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise CheckpointError(
            f"{path} is no complete GGUF file ({error}). Download it again"
        ) from error


def field(reader: Any, name: str, default: Any = None) -> Any:
    """A metadata value, or the default where the file has none."""
    found = reader.fields.get(name)
    return default if found is None else found.contents()


def read_gguf(path: Path) -> tuple[LlamaConfig, Mapping[str, np.ndarray]]:
    """Configuration and tensors under their Hugging Face names, in that layout.

    Raises:
        CheckpointError: the file is damaged or a tensor is missing or unknown.
        ConfigError: an architecture or setting that is not implemented.
    """
    reader = open_gguf(path)
    config = _config(reader, path)
    tensors = _Tensors(reader, config)
    wanted = set(tensors.names.values())
    missing = sorted(wanted - tensors.stored.keys())
    extra = sorted(tensors.stored.keys() - wanted)
    if missing or extra:
        raise CheckpointError(
            f"{path} is not the Llama model that its header describes: missing "
            f"{missing[:12]}, unknown {extra[:12]}"
        )
    return config, tensors


class _Tensors(Mapping[str, np.ndarray]):
    """Tensors by Hugging Face name, dequantised when they are read."""

    def __init__(self, reader: Any, config: LlamaConfig) -> None:
        self.stored = {t.name: t for t in reader.tensors}
        self.heads = {
            "attn_q.weight": config.num_attention_heads,
            "attn_k.weight": config.num_key_value_heads,
        }
        self.names = {
            hf: name
            for hf, name in _TOP.items()
            if hf != "lm_head.weight" or not config.tie_word_embeddings
        }
        for n in range(config.num_hidden_layers):
            for hf, name in _LAYER.items():
                self.names[f"model.layers.{n}.{hf}"] = f"blk.{n}.{name}"

    def __getitem__(self, name: str) -> np.ndarray:
        from gguf.quants import dequantize

        stored = self.stored[self.names[name]]
        try:
            array = dequantize(stored.data, stored.tensor_type)
        except NotImplementedError as error:
            raise CheckpointError(f"{stored.name}: {error}") from error
        heads = self.heads.get(stored.name.split(".", 2)[-1])
        if heads is None:
            return array
        # GGUF interleaves the two halves of a head's rotary channels.
        half = array.shape[0] // heads // 2
        array = array.reshape(heads, half, 2, array.shape[1]).swapaxes(1, 2)
        return array.reshape(-1, array.shape[-1])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _config(reader: Any, path: Path) -> LlamaConfig:
    architecture = field(reader, "general.architecture")
    if architecture != "llama":
        raise ConfigError(
            f"{path}: architecture {architecture!r}; only Llama models are read from "
            "GGUF (Qwen3.5: give the folder of the safetensors checkpoint)"
        )
    names = {t.name for t in reader.tensors}
    if "rope_freqs.weight" in names or field(reader, "llama.rope.scaling.type"):
        raise ConfigError(f"{path}: scaled rotary embeddings are not implemented")

    def required(name: str) -> Any:
        value = field(reader, f"llama.{name}")
        if value is None:
            raise CheckpointError(f"{path}: the header lacks llama.{name}")
        return value

    hidden, heads = required("embedding_length"), required("attention.head_count")
    dim = field(reader, "llama.attention.key_length", hidden // heads)
    if field(reader, "llama.rope.dimension_count", dim) != dim:
        raise ConfigError(f"{path}: partial rotary embeddings are not implemented")
    eos = field(reader, "tokenizer.ggml.eos_token_id")
    tokens = reader.fields.get("tokenizer.ggml.tokens")
    vocab = field(reader, "llama.vocab_size") or (len(tokens.data) if tokens else 0)
    return LlamaConfig(
        vocab_size=int(vocab),
        hidden_size=int(hidden),
        intermediate_size=int(required("feed_forward_length")),
        num_hidden_layers=int(required("block_count")),
        num_attention_heads=int(heads),
        num_key_value_heads=int(field(reader, "llama.attention.head_count_kv", heads)),
        head_dim=int(dim),
        rms_norm_eps=_decimal(required("attention.layer_norm_rms_epsilon")),
        rope_theta=_decimal(field(reader, "llama.rope.freq_base", 10_000.0)),
        tie_word_embeddings="output.weight" not in names,
        max_position_embeddings=int(field(reader, "llama.context_length", 2048)),
        pad_token_id=field(reader, "tokenizer.ggml.padding_token_id"),
        bos_token_id=field(reader, "tokenizer.ggml.bos_token_id"),
        eos_token_id=() if eos is None else (int(eos),),
    )


def _decimal(stored: float) -> float:
    """The decimal that a float32 was rounded from: 1e-05, not 9.99999975e-06."""
    return float(str(np.float32(stored)))
