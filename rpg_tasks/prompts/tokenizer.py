"""A tokenizer with a chat template, from a folder or a hub id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rpg_tasks.task import TaskError


def load_tokenizer(name: str) -> Any:
    """transformers' tokenizer for a model folder or hub id.

    Raises:
        TaskError: transformers is missing, there is no such tokenizer, or it has no
            chat template.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise TaskError(
            "chat templates need transformers: pip install -e '.[llm]'"
        ) from None
    # These are folders; the hub would answer with advice about its own names.
    if name.startswith((".", "/", "~")):
        if not Path(name).expanduser().is_dir():
            raise TaskError(f"there is no tokenizer folder {name!r}")
        name = str(Path(name).expanduser())
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().split("\n")[0]
        raise TaskError(f"no tokenizer in {name!r}: {first}") from error
    if not tokenizer.chat_template:
        raise TaskError(f"the tokenizer in {name!r} has no chat template")
    return tokenizer
