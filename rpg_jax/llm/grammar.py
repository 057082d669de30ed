"""Which tokens may follow: token automata and masks for the sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int


class Grammar(NamedTuple):
    """A token automaton: in state s the tokens ``allowed[s]`` may follow.

    Attributes:
        allowed: at least one token per state.
        next_state: the state after each token.
        start: where rows begin, a state or one for each prompt.
    """

    allowed: Bool[Array, "S V"]
    next_state: Int[Array, "S V"]
    start: Int[Array, " P"] | int = 0


class Automaton:
    """Builds a ``Grammar`` from its end to its beginning; equal states are one.

        tree = Automaton()
        colour = tree.spell([(red, tree.end), (blue, tree.end)])
        start = tree.spell([(a_pen_in, colour), (nothing, tree.end)])
        grammar = tree.grammar(start, vocab_size, stop_id)

    Attributes:
        end: the state in which only the stop token may follow.
    """

    _STOP = -1

    def __init__(self) -> None:
        self.end = 0
        self._edges: list[dict[int, int]] = [{self._STOP: 0}]
        self._known: dict[tuple[tuple[int, int], ...], int] = {}

    def spell(self, ways: Sequence[tuple[Sequence[int], int]]) -> int:
        """The state from which any of ``ways`` may be gone.

        Args:
            ways: (ids, state that follows them). They may begin with the same ids;
                without ids, the state itself is one of the ways.

        Raises:
            ValueError: there is no way.
        """
        if not ways:
            raise ValueError("a grammar needs at least one choice")
        followed = {state for ids, state in ways if not len(ids)}
        if len(followed) == 1 and not any(len(ids) for ids, _ in ways):
            return followed.pop()
        parts: dict[int, list[tuple[Sequence[int], int]]] = {}
        for ids, state in ways:
            if len(ids):
                parts.setdefault(int(ids[0]), []).append((ids[1:], state))
        for state in followed:
            for token, target in self._edges[state].items():
                parts.setdefault(token, []).append(((), target))
        edges = {token: self.spell(part) for token, part in parts.items()}
        key = tuple(sorted(edges.items()))
        if key not in self._known:
            self._known[key] = len(self._edges)
            self._edges.append(edges)
        return self._known[key]

    def longest(self, start: int) -> int:
        """Tokens of the longest way from ``start``, the stop token included."""
        known = {self.end: 1}

        def length(state: int) -> int:
            if state not in known:
                known[state] = 1 + max(
                    0 if token == self._STOP else length(target)
                    for token, target in self._edges[state].items()
                )
            return known[state]

        return length(start)

    def accepts(self, start: int, ids: Sequence[int]) -> bool:
        """Whether the stop token may follow these ids."""
        state = start
        for token in ids:
            if token not in self._edges[state]:
                return False
            state = self._edges[state][token]
        return self._STOP in self._edges[state]

    def states(self, *starts: int) -> list[int]:
        """The states that can be reached from ``starts``, which come first."""
        order = list(dict.fromkeys(starts))
        known = set(order)
        for state in order:
            fresh = [t for t in self._edges[state].values() if t not in known]
            order += dict.fromkeys(fresh)
            known.update(fresh)
        return order

    def grammar(
        self, start: int | Sequence[int], vocab_size: int, stop_id: int
    ) -> Grammar:
        """The automaton from ``start``, which is its state 0.

        Args:
            start: a state, or several: they become 0, 1, ... in their order, and each
                prompt's is chosen by ``grammar._replace(start=[P])``.
            vocab_size: number of tokens.
            stop_id: the token that ends a text.

        Raises:
            ValueError: an id outside the vocabulary.
        """
        order = self.states(*([start] if isinstance(start, int) else start))
        number = {state: i for i, state in enumerate(order)}
        allowed = np.zeros((len(order), vocab_size), bool)
        following = np.zeros((len(order), vocab_size), np.int32)
        for state in order:
            for token, target in self._edges[state].items():
                token = stop_id if token == self._STOP else token
                if not 0 <= token < vocab_size:
                    raise ValueError(f"grammar: ids must lie in [0, {vocab_size})")
                allowed[number[state], token] = True
                following[number[state], token] = number[target]
        return Grammar(jnp.asarray(allowed), jnp.asarray(following))


def choice_grammar(
    choices: Sequence[Sequence[int]], vocab_size: int, stop_id: int
) -> Grammar:
    """The automaton that spells one of ``choices`` and then stops.

    Raises:
        ValueError: no choice, an empty one, or an id outside the vocabulary.
    """
    if not choices or not all(len(c) for c in choices):
        raise ValueError("a grammar needs at least one choice, and no empty one")
    tree = Automaton()
    start = tree.spell([(list(choice), tree.end) for choice in choices])
    return tree.grammar(start, vocab_size, stop_id)


def mask_table(
    logit_mask: Any, vocab_size: int, prompts: int, samples: int
) -> dict[str, Any]:
    """Any form of mask -> table of masks, transitions and starting states."""
    if logit_mask is None:
        return {"allowed": None, "next_state": None, "start": None}
    batch = prompts * samples
    if isinstance(logit_mask, Grammar):
        allowed = jnp.asarray(logit_mask.allowed, bool)
        following = jnp.asarray(logit_mask.next_state, jnp.int32)
        start = jnp.asarray(logit_mask.start, jnp.int32)
        if start.ndim and start.shape != (prompts,):
            raise ValueError(f"grammar starts {start.shape}, want ({prompts},)")
        start = jnp.repeat(jnp.broadcast_to(start, (prompts,)), samples)
        if following.shape != allowed.shape:
            raise ValueError("grammar: allowed and next_state differ in shape")
    else:
        allowed = jnp.atleast_2d(jnp.asarray(logit_mask, bool))
        following = None
        if len(allowed) not in (1, prompts):
            raise ValueError(
                f"logit_mask has shape {jnp.shape(logit_mask)}, want "
                f"({vocab_size},) or ({prompts}, {vocab_size})"
            )
        start = jnp.repeat(jnp.arange(prompts, dtype=jnp.int32), samples)
        start = start if len(allowed) > 1 else jnp.zeros((batch,), jnp.int32)
    if allowed.shape[-1] != vocab_size:
        raise ValueError(
            f"logit mask covers {allowed.shape[-1]} tokens, the vocabulary has "
            f"{vocab_size}"
        )
    if not bool(jnp.all(jnp.any(allowed, axis=-1))):
        raise ValueError("a logit mask forbids every token")
    return {"allowed": allowed, "next_state": following, "start": start}
