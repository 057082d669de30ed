"""Self-improvement chains: which script each slot is asked to improve next."""

import collections
from collections.abc import Callable
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
    program: str | None = None  # digest; None on records of an older form
    #: Place among the valid distinct scripts it was ranked with, and their number.
    rank: tuple[int, int] | None = None


class Parents:
    """The valid attempts of the past, first in first out, ranked when asked.

    Ranks are taken at the price of the moment: an attempt that was good value when a
    second was cheap loses its place when the price rises.

    Args:
        capacity: attempts kept.
        distinct: keep one attempt of a program.
    """

    def __init__(self, capacity: int, *, distinct: bool = False):
        self._entries: collections.deque[Entry] = collections.deque(maxlen=capacity)
        self._distinct = distinct
        self._programs: set[str] = set()  # of the attempts kept, if distinct

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Store one valid attempt; the oldest leaves when there is no room."""
        program = entry.program if self._distinct else None
        if program is not None:
            if program in self._programs:
                return
            self._programs.add(program)
        if len(self._entries) == self._entries.maxlen:
            self._programs.discard(self._entries[0].program or "")
        self._entries.append(entry)

    def by_id(self) -> dict[str, Entry]:
        """The attempts kept, by ``run_id``."""
        return {entry.run_id: entry for entry in self._entries}

    def ranked(
        self,
        arm: Arm,
        price: float,
        worth: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> list[Entry]:
        """Best first: by value - price * seconds, or by value / seconds for an arm that
        learns from ratios. On ties those of higher value, then older ones are first.

        Args:
            arm: gives the form.
            price: of a second.
            worth: what takes the place of values, [N] -> [N].
        """
        if not self._entries:
            return []
        entries = list(self._entries)
        own = value = np.array([entry.value for entry in entries])
        if worth is not None:
            value = worth(own)
        seconds = np.array([entry.seconds for entry in entries])
        if arm.signal == "ratio":
            score = value / seconds
        else:
            score = relative_reward(value, seconds, price)
        order = np.argsort(-score, kind="stable")
        if worth is not None:  # most attempts are worth 0 where k is large
            order = np.lexsort((-own, -score))
        return [entries[i] for i in order]

    def next_states(
        self,
        arm: Arm,
        price: float,
        chains: int,
        worth: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> list[Entry | None]:
        """The parent of each chain: chain i improves on rank i, cycling where there
        are fewer; None (the base prompt) while nothing valid is known, and for an
        arm without parents. Each has its rank.
        """
        ranked = self.ranked(arm, price, worth) if arm.parents == "ranked" else []
        if not ranked:
            return [None] * chains
        places: dict[str, int] = {}
        for entry in ranked:
            places.setdefault(entry.program or entry.run_id, len(places) + 1)
        ranked = [
            entry._replace(
                rank=(places[entry.program or entry.run_id], len(places)),
            )
            for entry in ranked[:chains]
        ]
        return [ranked[i % len(ranked)] for i in range(chains)]
