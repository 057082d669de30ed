"""Token batches of few shapes from an endless, seeded stream of examples.

A block holds the same number of examples of every task, base and improve in turn. Its
examples are sorted by length and cut into batches, each padded to the next of a few
lengths; every length has its own number of rows, so that a batch has about the same
number of tokens whatever its shape and each shape is compiled once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.teaching.examples import Example, generate
from rpg_jax.llm.tokenizer import chat_ids

LENGTHS = (96, 128, 160, 224, 288)


class TokenBatch(NamedTuple):
    """Examples padded on the left.

    Attributes:
        tokens: [B, T] int32.
        mask: [B, T] bool, real tokens.
        weight: [B, T] float32, weight of each token in the loss as a *target*: 1 in
            the completion, less in the prompt, 0 at pads.
    """

    tokens: np.ndarray
    mask: np.ndarray
    weight: np.ndarray


class Place(NamedTuple):
    """Where the stream is: the next batch to come."""

    block: int = 0
    at: int = 0


START = Place()


@dataclasses.dataclass(frozen=True)
class Stream:
    """Examples as batches; equal settings give equal batches.

    Attributes:
        tasks: short names; one that stands there twice has twice the examples.
        tokenizer: of the policy.
        seed: of the examples.
        tokens: of a batch, about.
        per_task: examples of each task in a block.
        prompt_weight: of a prompt's tokens in the loss.
        base_every: one example of so many answers a base prompt.
        lengths: of batches, ascending.
    """

    tasks: Sequence[str]
    tokenizer: Any
    seed: int = 0
    tokens: int = 4096
    per_task: int = 8
    prompt_weight: float = 0.05
    base_every: int = 3
    lengths: tuple[int, ...] = LENGTHS

    def examples(self, block: int) -> Iterator[Example]:
        """The examples of a block, ``per_task`` of every task."""
        for number, task in enumerate(self.tasks):
            rng = np.random.default_rng([self.seed, block, number])
            for k in range(self.per_task):
                kind = "improve" if (k + block) % self.base_every else "base"
                yield generate(task, rng, kind=kind)

    def block(self, block: int) -> list[TokenBatch]:
        """The batches of a block, in random order."""
        rows = [self.encode(example) for example in self.examples(block)]
        rows = [row for row in rows if len(row[0]) <= self.lengths[-1]]
        rows.sort(key=lambda row: len(row[0]))
        batches, low = [], 0
        for length in self.lengths:
            size = max(self.tokens // length, 1)
            fits = [row for row in rows if low < len(row[0]) <= length]
            batches += [
                self._pad(fits[k : k + size], size, length)
                for k in range(0, len(fits), size)
            ]
            low = length
        order = np.random.default_rng([self.seed, block]).permutation(len(batches))
        return [batches[k] for k in order]

    def encode(self, example: Example) -> tuple[list[int], np.ndarray]:
        """Ids of prompt, completion and its end, and the weight of each as a target."""
        prompt = chat_ids(self.tokenizer, example.prompt)
        answer = self.tokenizer.encode(example.completion, add_special_tokens=False)
        weight = np.ones(len(prompt) + len(answer) + 1, np.float32)
        weight[: len(prompt)] = self.prompt_weight
        weight[0] = 0.0  # nothing comes before it
        return [*prompt, *answer, self.tokenizer.eos_token_id], weight

    def _pad(
        self, rows: Sequence[tuple[list[int], np.ndarray]], size: int, length: int
    ) -> TokenBatch:
        tokens = np.zeros((size, length), np.int32)
        mask = np.zeros((size, length), bool)
        weight = np.zeros((size, length), np.float32)
        for k, (ids, weights) in enumerate(rows):
            start = length - len(ids)
            tokens[k, start:] = ids
            mask[k, start:] = True
            weight[k, start:] = weights
        return TokenBatch(tokens, mask, weight)

    def batches(self, place: Place = START) -> Iterator[tuple[TokenBatch, Place]]:
        """Batches from a place on, each with the place that follows it."""
        block, at = place
        while True:
            found = self.block(block)
            for k in range(at, len(found)):
                last = k + 1 == len(found)
                yield found[k], Place(block + 1, 0) if last else Place(block, k + 1)
            block, at = block + 1, 0
