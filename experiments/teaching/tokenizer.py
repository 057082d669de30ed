"""The embedded policy's tokenizer: a small byte-level BPE with a chat template.

Every text has an encoding (all 256 bytes are in the vocabulary) and decodes to itself.
The folder that ``save`` writes is read by ``rpg_jax.llm.load_tokenizer`` like that of
any other model.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
VOCABULARY = 3072

# The turns of Qwen's chats. There is no thinking to turn off: enable_thinking is
# accepted and changes nothing.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(texts: Iterable[str], *, vocabulary: int = VOCABULARY) -> Any:
    """A transformers tokenizer trained on texts.

    Args:
        texts: what the policy will read and write.
        vocabulary: number of tokens, the three special ones and 256 bytes included.
    """
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    # A part's name, an option, a parameter with its value: one word each, with the
    # space before it, so that a frequent one becomes one token. Line ends stand alone.
    words = pre_tokenizers.Split(Regex(r"\n| ?[^\s]+|\s"), "isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([words, letters])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    wrap: Any = PreTrainedTokenizerFast  # transformers has no types here
    return wrap(
        tokenizer_object=core,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def save(tokenizer: Any, folder: str | os.PathLike[str]) -> Path:
    """Write tokenizer.json, tokenizer_config.json and the chat template."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    return folder
