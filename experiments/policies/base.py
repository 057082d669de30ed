"""What the loop asks of a policy, and what it gives it to learn from."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from experiments.records.drafts import Generation


class Signals(NamedTuple):
    """What one batch teaches; arrays of shape [B], 0 where ``mask`` is false."""

    relative: np.ndarray  # the signal: r - price * charged, or r / charged
    advantage: np.ndarray  # over the protocol's baseline, times weight; no critic
    weight: np.ndarray
    charged: np.ndarray  # seconds
    mask: np.ndarray  # bool; rows that take part


@runtime_checkable
class Parks(Protocol):
    """A policy whose training state can leave the accelerator for a while."""

    def park(self) -> None:
        """Keep the training state in the host's memory."""

    def wake(self) -> None:
        """Bring it back; one that was not parked stays as it is."""


class Policy(Protocol):
    """A policy as the loop sees it. Deterministic given its state and its inputs."""

    def sample(
        self, step: int, rows: Sequence[int], prompts: Sequence[str]
    ) -> Iterator[Generation]:
        """Answer these prompts, in one group or in several: scripts of a group run
        while the next is being written.

        A row's answer may depend on the state, the seed, the step, its row and its
        prompt, not on which other rows are asked for.
        """

    def learn(
        self, step: int, generations: Sequence[Generation], signals: Signals
    ) -> dict[str, float]:
        """One update; what it measured (no times: replay compares these numbers)."""

    def save(self, step: int, meta: Mapping[str, Any]) -> None:
        """Keep the state in which ``step`` is the next step."""

    def restore(self) -> int:
        """Take up the newest state kept; its step, 0 for the start."""
