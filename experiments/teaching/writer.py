"""A policy that writes scripts for prompts, outside any training loop."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rpg_jax.llm import left_pad, load_pretrained, load_tokenizer, sample
from rpg_jax.llm.sampling import bucket
from rpg_jax.llm.tokenizer import chat_ids, decode, stop_ids
from rpg_tasks.prepare import TaskData
from rpg_tasks.prompts import Attempt, NoScript, extract_script, prompt


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the policy wrote.

    Attributes:
        text: the whole answer.
        script: what is in its block; None without one.
        tokens: length, its end included.
    """

    text: str
    script: str | None
    tokens: int


def parses(script: str) -> bool:
    """Whether Python's compiler reads it."""
    try:
        ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


@dataclasses.dataclass(frozen=True)
class Writer:
    """A model and its tokenizer.

    Attributes:
        config: of the model.
        params: weights.
        tokenizer: of the model.
        max_new_tokens: longest answer.
    """

    config: Any
    params: Any
    tokenizer: Any
    max_new_tokens: int = 640

    @classmethod
    def load(cls, model: str | Path) -> Writer:
        """From a name or folder, as ``--model`` takes it."""
        config, params = load_pretrained(model)
        return cls(config, params, load_tokenizer(model))

    def base_prompt(self, data: TaskData) -> str:
        """The prompt of a chain's first attempt."""
        return prompt(data.task, data.public, None, style="compact")

    def improve_prompt(self, data: TaskData, attempt: Attempt) -> str:
        """The prompt that shows a previous attempt."""
        return prompt(data.task, data.public, attempt, style="compact")

    def write(
        self, prompts: Sequence[str], *, seed: int, temperature: float = 1.0
    ) -> list[Answer]:
        """One answer to each prompt.

        Args:
            prompts: what is asked.
            seed: of the sampler.
            temperature: divides the logits.
        """
        ids = [chat_ids(self.tokenizer, text) for text in prompts]
        tokens, mask = left_pad(ids, length=bucket(max(map(len, ids))))
        done = sample(
            jax.random.key(seed),
            self.params,
            self.config,
            tokens,
            mask,
            max_new_tokens=self.max_new_tokens,
            temperature=temperature,
            stop_ids=stop_ids(self.config, self.tokenizer),
        )
        lengths = np.asarray(done.mask).sum(axis=1)
        texts = decode(self.tokenizer, done.tokens, done.mask)
        return [
            Answer(text, _script(text), int(length))
            for text, length in zip(texts, lengths, strict=True)
        ]


def _script(text: str) -> str | None:
    try:
        return extract_script(text)
    except NoScript:
        return None
