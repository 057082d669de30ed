"""A menu as a grammar over a model's tokens: what may be sampled, what it means."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.config.errors import LoopError
from experiments.menus.menu import FORM, LabelledOption, Menu
from experiments.menus.prompt import shown_form
from experiments.menus.task_menu import menu_of
from rpg_jax.llm.grammar import Automaton, Grammar
from rpg_jax.llm.head import MaskTable
from rpg_jax.llm.tokenizer import stop_ids
from rpg_tasks.goal import Goal


class TokenMenu:
    """A task's menu for one tokenizer: whole answers, and edits of each form.

    Args:
        menu: parts, options, values.
        config: of the model; for the size of its vocabulary and its stop tokens.
        tokenizer: the model's.

    Attributes:
        menu: the menu.
        tree: the automaton that spells answers and nothing else.
        starts: its state at the beginning of an answer: of a whole one (key None), and
            of one to a prompt that shows a script of some form.
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
        self.starts = _Speller(self.tree, menu, tokenizer).starts()
        self.longest = max(map(self.tree.longest, self.starts.values()))
        self._vocabulary, self._stop = config.vocab_size, stop[0]

    @functools.cached_property
    def grammar(self) -> Grammar:
        """For the sampler; a dense table, 5 bytes per state and word."""
        starts = list(self.starts.values())
        return self.tree.grammar(starts, self._vocabulary, self._stop)

    def grammar_for(self, prompts: Sequence[str]) -> Grammar:
        """The grammar, each prompt at the beginning of its answer."""
        order = list(dict.fromkeys(self.starts.values()))
        states = [self.starts[shown_form(prompt)] for prompt in prompts]
        start = jnp.array([order.index(state) for state in states], jnp.int32)
        return self.grammar._replace(start=start)

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


def token_menu(task: Goal, config: Any, tokenizer: Any) -> TokenMenu:
    """The menu of a task in a model's tokens.

    Raises:
        MenuError: the task has no menu, or one that cannot be used.
        LoopError: the model has no token that ends an answer.
    """
    return TokenMenu(menu_of(task.short), config, tokenizer)


class _Speller:
    """Spells a menu's texts into an automaton, from their ends to their beginnings.

    Words are encoded with the space before them, as a tokenizer that splits at spaces
    encodes them inside a line: the ids are those of the whole text.
    """

    def __init__(self, tree: Automaton, menu: Menu, tokenizer: Any):
        self._tree, self._menu, self._tokenizer = tree, menu, tokenizer

    def starts(self) -> dict[str | None, int]:
        """The beginnings: see ``TokenMenu.starts``."""
        whole = self._whole()
        begin = self._tree.spell([whole])
        found: dict[str | None, int] = {None: begin}
        for name in self._menu.parts:
            found[name] = self._tree.spell([whole, *self._edits(name)])
        return found

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _whole(self) -> tuple[list[int], int]:
        """Every part of a form, in order."""
        ways = []
        for name, parts in self._menu.parts.items():
            following = self._tree.end
            for slot in reversed(list(parts)):
                state = self._choices(parts[slot], following)
                following = self._tree.spell([(self._ids(f"\n{slot}:"), state)])
            ways.append((self._ids(f" {name}"), following))
        return self._ids(f"{FORM}:"), self._tree.spell(ways)

    def _edits(self, form: str) -> list[tuple[list[int], int]]:
        """Some parts of a form, in order, at least one."""
        parts = self._menu.parts[form]
        first: list[tuple[list[int], int]] = []
        later: list[tuple[list[int], int]] = []
        for slot in reversed(list(parts)):
            stop: list[tuple[list[int], int]] = [([], self._tree.end)]
            state = self._choices(parts[slot], self._tree.spell(stop + later))
            first.append((self._ids(f"{slot}:"), state))
            later.append((self._ids(f"\n{slot}:"), state))
        return first

    def _choices(self, choices: Mapping[str, LabelledOption], following: int) -> int:
        """The options of a part with their values."""
        options = []
        for label, choice in choices.items():
            state = following
            for parameter, values in reversed(list(choice.values.items())):
                words = [self._ids(f" {parameter}={value}") for value in values]
                state = self._tree.spell([(word, state) for word in words])
            options.append((self._ids(f" {label}"), state))
        return self._tree.spell(options)
