"""A menu as a grammar over a model's tokens: what may be sampled, what it means."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.config.errors import LoopError
from experiments.menus.menu import FORM, Menu
from experiments.menus.task_menu import NoMenu, recipes
from rpg_jax.llm.grammar import Automaton, Grammar
from rpg_jax.llm.head import MaskTable
from rpg_jax.llm.tokenizer import stop_ids
from rpg_tasks.registry import Task


class TokenMenu:
    """A task's menu for one tokenizer.

    Args:
        menu: parts, options, values.
        config: of the model; for the size of its vocabulary and its stop tokens.
        tokenizer: the model's.

    Attributes:
        menu: the menu.
        tree: the automaton that spells the menu's texts and nothing else.
        start: its state at the beginning of an answer.
        longest: tokens of the longest answer, the stop token included.

    Raises:
        LoopError: the model has no token that ends an answer.
    """

    def __init__(self, menu: Menu, config: Any, tokenizer: Any):
        stop = stop_ids(config, tokenizer)
        if not stop:
            raise LoopError("a menu needs a model with a token that ends its answers")
        self.menu = menu
        self.tree = Automaton()
        self.start = _spell(self.tree, menu, tokenizer)
        self.longest = self.tree.longest(self.start)
        self._vocabulary, self._stop = config.vocab_size, stop[0]

    @functools.cached_property
    def grammar(self) -> Grammar:
        """For the sampler; a dense table, 5 bytes per state and word."""
        return self.tree.grammar(self.start, self._vocabulary, self._stop)

    @functools.cached_property
    def masks(self) -> tuple[np.ndarray, np.ndarray]:
        """The different masks [M, V], and which of them each state has [S]."""
        packed = np.packbits(np.asarray(self.grammar.allowed), axis=1)
        rows, index = np.unique(packed, axis=0, return_inverse=True)
        table = np.unpackbits(rows, axis=1, count=self._vocabulary) > 0
        return table, index.reshape(-1).astype(np.int32)

    @functools.cached_property
    def digest(self) -> str:
        """Of the grammar: another one means another menu or tokenizer."""
        allowed, following = map(np.asarray, self.grammar[:2])
        sha = hashlib.sha256(np.packbits(allowed).tobytes())
        sha.update(following[allowed].tobytes())
        return sha.hexdigest()[:16]

    def mask_table(self, index: np.ndarray) -> MaskTable:
        """Masks of a batch, for the trainer; ``index`` [B, L] as ``mask_index`` gave.

        The ratio of an update is between the distributions that were sampled from.
        """
        return MaskTable(jnp.asarray(self.masks[0]), jnp.asarray(index))

    def mask_index(self, states: Any) -> np.ndarray:
        """States of the sampler's grammar [B, L] -> rows of the mask table, int32."""
        rows: np.ndarray = self.masks[1][np.asarray(states)]
        return rows

    def answer(self, text: str) -> str:
        """What the loop reads for a sampled text: a plan and one fenced script."""
        return self.menu.answer(text)


def token_menu(task: Task, config: Any, tokenizer: Any) -> TokenMenu:
    """The menu of a task in a model's tokens.

    Raises:
        LoopError: the task has no menu, or one that cannot be used.
    """
    try:
        menu = Menu(recipes(task.short))
    except (NoMenu, ValueError) as error:
        raise LoopError(str(error)) from error
    return TokenMenu(menu, config, tokenizer)


def _spell(tree: Automaton, menu: Menu, tokenizer: Any) -> int:
    """The state in which an answer begins.

    Words are encoded with the space before them, as a tokenizer that splits at spaces
    encodes them inside a line: the ids are those of the whole text.
    """

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    ways = []
    for name, parts in menu.parts.items():
        following = tree.end
        for slot, choices in reversed(list(parts.items())):
            options = []
            for label, choice in choices.items():
                state = following
                for parameter, values in reversed(list(choice.values.items())):
                    words = [ids(f" {parameter}={value}") for value in values]
                    state = tree.spell([(word, state) for word in words])
                options.append((ids(f" {label}"), state))
            head = ids(f"\n{slot}:")
            following = tree.spell([(head, tree.spell(options))])
        ways.append((ids(f" {name}"), following))
    return tree.spell([(ids(f"{FORM}:"), tree.spell(ways))])
