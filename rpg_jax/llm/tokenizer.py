"""Tokenizers and chat prompts; transformers is imported on first use only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.errors import CheckpointError

# Ids that end a turn or a document, by name, in the vocabularies we know.
STOP_TOKENS = ("<|im_end|>", "<|endoftext|>")


def load_tokenizer(path_or_id: str | os.PathLike[str]) -> Any:
    """The tokenizer of a model folder, hub id (from the local cache) or GGUF file.

    Returns:
        A transformers ``PreTrainedTokenizerFast``.

    Raises:
        CheckpointError: transformers is missing, or the tokenizer cannot be read.
    """
    from rpg_jax.llm.weights import resolve

    path = resolve(path_or_id)
    try:
        transformers = _transformers()
    except ImportError as error:
        raise CheckpointError(
            "tokenizers need transformers: pip install rpg-jax[llm]"
        ) from error
    if path.is_file():
        return _from_gguf(path)
    try:
        # Ours is of the plain class; AutoTokenizer takes two seconds to find that out.
        if path_or_id == "tiny":
            kind = transformers.PreTrainedTokenizerFast
        else:
            kind = transformers.AutoTokenizer
        return kind.from_pretrained(path, local_files_only=True)
    except Exception as error:  # transformers raises many kinds for broken files
        reason = str(error).strip().splitlines()
        raise CheckpointError(
            f"{path}: no readable tokenizer (tokenizer.json and "
            f"tokenizer_config.json): {reason[0] if reason else type(error).__name__}"
        ) from error


def _transformers() -> Any:
    """The package, without its advice to install PyTorch: its models are not used."""
    name = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        import transformers
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
    return transformers


def chat_ids(tokenizer: Any, prompt: str, *, system: str | None = None) -> list[int]:
    """Token ids of one user turn, ready for the answer, thinking turned off.

    A tokenizer without a chat template encodes the prompt as it stands.
    """
    if not getattr(tokenizer, "chat_template", None):
        text = prompt if system is None else f"{system}\n\n{prompt}"
        return list(tokenizer.encode(text, add_special_tokens=False))
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": prompt})
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    return list(tokenizer.encode(text, add_special_tokens=False))


def stop_ids(config: ModelConfig, tokenizer: Any = None) -> tuple[int, ...]:
    """Every id that ends a completion: the configuration's and the named ones."""
    ids = list(config.eos_token_id)
    if tokenizer is not None:
        if tokenizer.eos_token_id is not None:
            ids.append(tokenizer.eos_token_id)
        vocabulary = tokenizer.get_vocab()
        ids += [vocabulary[t] for t in STOP_TOKENS if t in vocabulary]
    return tuple(dict.fromkeys(int(i) for i in ids))


def decode(tokenizer: Any, tokens: Any, mask: Any) -> list[str]:
    """Text of every row, special tokens left out."""
    return [
        tokenizer.decode(
            [int(t) for t, m in zip(row, keep, strict=True) if m],
            skip_special_tokens=True,
        )
        for row, keep in zip(tokens, mask, strict=True)
    ]


def _from_gguf(path: Path) -> Any:
    """A byte-level BPE tokenizer from the vocabulary inside a GGUF file."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    from rpg_jax.llm.gguf_file import field, open_gguf

    transformers = _transformers()
    reader = open_gguf(path)
    kind = field(reader, "tokenizer.ggml.model")
    flavour = field(reader, "tokenizer.ggml.pre")
    if kind != "gpt2" or flavour not in ("smollm", "gpt-2", "default", None):
        raise CheckpointError(
            f"{path}: tokenizer {kind!r} / {flavour!r} is not implemented; use the "
            "model's safetensors folder"
        )
    vocabulary: Sequence[str] = field(reader, "tokenizer.ggml.tokens")
    merges: Sequence[str] = field(reader, "tokenizer.ggml.merges")
    core = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(vocabulary)},
            merges=[(left, right) for left, right in (m.split(" ") for m in merges)],
        )
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    core.pre_tokenizer = (
        pre_tokenizers.Sequence([digits, byte_level])
        if flavour == "smollm"
        else byte_level
    )
    core.decoder = decoders.ByteLevel()
    control = 3
    types = field(reader, "tokenizer.ggml.token_type", [])
    core.add_special_tokens(
        [
            tokenizers.AddedToken(token, special=True, normalized=False)
            for token, t in zip(vocabulary, types, strict=False)
            if t == control
        ]
    )

    def named(name: str) -> str | None:
        index = field(reader, f"tokenizer.ggml.{name}_token_id")
        return None if index is None else vocabulary[index]

    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=named("bos"),
        eos_token=named("eos"),
        pad_token=named("padding"),
        chat_template=field(reader, "tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
    )
