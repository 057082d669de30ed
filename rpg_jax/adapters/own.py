"""The policy's own recent rate, in NumPy: what a second has earned lately.

A trainer owns the accelerator, so its price of time is counted on the host: nothing
here starts a JAX backend. Sums are those of a whole step, rounded once, so that the
order in which ranks, threads or workers report changes no bit of the price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rpg_jax.forgetting import POOLED_MEMORY

Column = Sequence[float] | np.ndarray


class OwnState(NamedTuple):
    """Sums over decisions, each weighted by how long ago it was."""

    earned: float = 0.0  # reward
    seconds: float = 0.0
    number: float = 0.0  # decisions

    @property
    def rate(self) -> float:
        """Reward per second, at least 0; 0 before data."""
        return max(self.earned / self.seconds, 0.0) if self.seconds > 0 else 0.0


def own_update(
    state: OwnState, *, earned: float, seconds: float, number: int, memory: float
) -> OwnState:
    """The state after a step of ``number`` decisions.

        E <- exp(-n / M) E + sum r,  D <- exp(-n / M) D + sum delta,  rate = E / D

    Args:
        state: before the step.
        earned: sum of the step's rewards.
        seconds: sum of its seconds.
        number: n; none of them changes nothing.
        memory: M, decisions; inf averages over the whole past.
    """
    if not number:
        return state
    kept = math.exp(-number / memory)
    return OwnState(
        kept * state.earned + earned,
        kept * state.seconds + seconds,
        kept * state.number + number,
    )


def check_memory(memory: float) -> float:
    """Refuse a memory that is not above 0; infinity is one."""
    if not memory > 0:
        raise ValueError(f"memory must be > 0 decisions, got {memory}")
    return float(memory)


class Own:
    """``own_update`` and its state, in the form that ``RelativeReward`` keeps.

    Args:
        memory: decisions that the average remembers.
    """

    needs: tuple[str, ...] = ()

    def __init__(self, *, memory: float = POOLED_MEMORY) -> None:
        self.memory = check_memory(memory)
        self.state = OwnState()

    def learn(
        self, columns: dict[str, np.ndarray], price: float
    ) -> tuple[OwnState, float]:
        """The state and the rate after a batch; nothing is kept yet."""
        state = own_update(
            self.state,
            earned=math.fsum(columns["reward"]),
            seconds=math.fsum(columns["duration"]),
            number=len(columns["reward"]),
            memory=self.memory,
        )
        return state, state.rate

    def leaves(self) -> list[np.ndarray]:
        """The state as arrays."""
        return [np.asarray(self.state, np.float64)]

    def built(self, leaves: list[np.ndarray]) -> OwnState:
        """A state of arrays that fit it."""
        return OwnState(*leaves[0].tolist())


class ExactSum:
    """A sum of floats without rounding: any order of additions gives the same number.

    Every finite float is a whole multiple of 2^-1074, and Python's integers do not
    overflow.
    """

    _UNIT = 1074

    def __init__(self) -> None:
        self._total = 0

    def add(self, values: Column) -> None:
        """Add finite floats."""
        for value in values:
            top, bottom = float(value).as_integer_ratio()
            self._total += top << (self._UNIT + 1 - bottom.bit_length())

    @property
    def value(self) -> float:
        """The sum, rounded once."""
        return self._total / (1 << self._UNIT)
