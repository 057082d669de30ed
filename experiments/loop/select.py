"""Self-improvement chains: which script each slot is asked to improve next."""

import collections
from typing import NamedTuple

import numpy as np

from experiments.config.arms import Arm
from rpg_jax.rewards import relative_reward


class Entry(NamedTuple):
    """A valid attempt that can be a parent."""

    run_id: str
    offset: int  # of its record in the ledger
    value: float  # reward without bonus
    seconds: float


class Parents:
    """The valid attempts of the past, first in first out, ranked when asked.

    Ranks are taken at the price of the moment: an attempt that was good value when a
    second was cheap loses its place when the price rises.
    """

    def __init__(self, capacity: int):
        self._entries: collections.deque[Entry] = collections.deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Store one valid attempt; the oldest leaves when there is no room."""
        self._entries.append(entry)

    def ranked(self, arm: Arm, price: float) -> list[Entry]:
        """Best first, older ones first on ties: by value - price * seconds, or by
        value / seconds for an arm that learns from ratios.
        """
        if not self._entries:
            return []
        entries = list(self._entries)
        value = np.array([entry.value for entry in entries])
        seconds = np.array([entry.seconds for entry in entries])
        if arm.signal == "ratio":
            score = value / seconds
        else:
            score = relative_reward(value, seconds, price)
        return [entries[i] for i in np.argsort(-score, kind="stable")]

    def next_states(self, arm: Arm, price: float, chains: int) -> list[Entry | None]:
        """The parent of each chain: chain i improves on rank i, cycling where there
        are fewer; None (the base prompt) while nothing valid is known.
        """
        ranked = self.ranked(arm, price)
        if not ranked:
            return [None] * chains
        ranked = ranked[:chains]
        return [ranked[i % len(ranked)] for i in range(chains)]
