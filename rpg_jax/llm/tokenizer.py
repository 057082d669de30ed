"""Tokenizers and chat prompts; transformers is imported on first use only."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.errors import CheckpointError

# Ids that end a turn or a document, by name, in the vocabularies we know.
STOP_TOKENS = ("<|im_end|>", "<|endoftext|>")
_LOOKS_LIKE_MARKUP = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]").fullmatch


def load_tokenizer(path_or_id: str | os.PathLike[str]) -> Any:
    """The tokenizer of a model folder, hub id (from the local cache) or GGUF file.

    Returns:
        A transformers ``PreTrainedTokenizerFast``.

    Raises:
        CheckpointError: transformers is missing, or the tokenizer cannot be read.
    """
    from rpg_jax.llm.known import RANDOM
    from rpg_jax.llm.weights import resolve

    if str(path_or_id).startswith(RANDOM):
        path_or_id = "tiny"  # any will do where the weights know nothing
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

    Markup inside the texts (``<|im_end|>`` in a script, say) stays text: it becomes
    ordinary tokens, so that no turn ends where the template does not end it. A
    tokenizer without a chat template encodes the prompt as it stands.

    Raises:
        ValueError: the template leaves text out or repeats it, so that the markup
            cannot be told from its own.
    """
    texts = [prompt] if system is None else [system, prompt]
    pattern = _markup(tokenizer)
    found = [mark for text in texts for mark in pattern.findall(text)]
    hole = next(c for c in map(chr, range(0xE000, 0xF8FF)) if c not in "".join(texts))
    *before, user = [pattern.sub(hole, text) for text in texts]
    parts = _rendered(tokenizer, user, *before).split(hole)
    if len(parts) != len(found) + 1:
        raise ValueError(
            f"the chat template shows {len(parts) - 1} of {len(found)} pieces of markup"
            " in the prompt; take it out of the text"
        )
    ids = list(tokenizer.encode(parts[0], add_special_tokens=False))
    for mark, part in zip(found, parts[1:], strict=True):
        # Cut after its first character it matches no special token.
        for piece in (mark[0], mark[1:], part):
            ids += tokenizer.encode(piece, add_special_tokens=False)
    return ids


def _rendered(tokenizer: Any, user: str, system: str | None = None) -> str:
    if not getattr(tokenizer, "chat_template", None):
        return user if system is None else f"{system}\n\n{user}"
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": user})
    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    return text


def _markup(tokenizer: Any) -> re.Pattern[str]:
    """Matches what this tokenizer would read as one token of a template's markup."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    # Some vocabularies have added tokens of plain text (runs of blanks, say).
    marks = [t.content for t in added if t.special or _LOOKS_LIKE_MARKUP(t.content)]
    longest_first = sorted((m for m in marks if len(m) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


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
