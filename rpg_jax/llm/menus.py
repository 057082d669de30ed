"""Which tokens may follow: masks, menus and token automata for the sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Grammar(NamedTuple):
    """A token automaton: in state s the tokens ``allowed[s]`` may follow.

    Attributes:
        allowed: bool [S, V], at least one token per state.
        next_state: int32 [S, V], the state after each token.
        start: int32 [B] or a scalar, where rows begin.
    """

    allowed: jax.Array
    next_state: jax.Array
    start: jax.Array | int = 0


def choice_grammar(
    choices: Sequence[Sequence[int]], vocab_size: int, stop_id: int
) -> Grammar:
    """The automaton that spells one of ``choices`` and then stops: a menu.

    Raises:
        ValueError: no choice, an empty one, or an id outside the vocabulary.
    """
    if not choices or not all(len(c) for c in choices):
        raise ValueError("a menu needs at least one choice, and no empty one")
    flat = [t for c in choices for t in c] + [stop_id]
    if min(flat) < 0 or max(flat) >= vocab_size:
        raise ValueError(f"menu ids must lie in [0, {vocab_size})")
    nodes: list[dict[int, int]] = [{}]
    for choice in choices:
        at = 0
        for token in choice:
            if token not in nodes[at]:
                nodes[at][token] = len(nodes)
                nodes.append({})
            at = nodes[at][token]
        nodes[at].setdefault(stop_id, at)
    allowed = np.zeros((len(nodes), vocab_size), bool)
    following = np.zeros((len(nodes), vocab_size), np.int32)
    for i, edges in enumerate(nodes):
        for token, target in edges.items():
            allowed[i, token] = True
            following[i, token] = target
    return Grammar(jnp.asarray(allowed), jnp.asarray(following))


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
