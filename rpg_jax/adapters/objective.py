"""What rewards are worth where the aim is the best answer, and not their sum."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from rpg_jax.best_of_k import max_at_k


class MaxAtK:
    r"""Max@k in place of the reward: what an attempt adds to the best of k.

    .. math:: w(v) = \int_0^v F(t)^{k-1} \, dt

    with F the distribution of the last batches, this one included. The price is then
    the policy's own rate of w. Rewards below 0 count as 0.

    Args:
        k: attempts that the budget has left, or 16 where they are more.
        batches: whose rewards are F.

    Raises:
        ValueError: one of them is below 1.

    Source: docs/concepts/best-score.md.
    """

    def __init__(self, k: float = 16.0, *, batches: int = 5) -> None:
        if k < 1 or batches < 1:
            raise ValueError(f"k and batches must be at least 1, got {k}, {batches}")
        self.k = float(k)
        self._batches: collections.deque[np.ndarray] = collections.deque(maxlen=batches)

    def add(self, value: Float[np.ndarray, " N"]) -> None:
        """Take the rewards of a batch into F."""
        if len(value):
            # Sorted, so that the order of ranks changes nothing.
            self._batches.append(np.sort(np.maximum(value, 0.0)))

    def worth(self, value: Float[np.ndarray, " B"]) -> Float[np.ndarray, " B"]:
        """w of each reward; the reward itself before there is an F."""
        value = np.maximum(value, 0.0)
        if not self._batches or not len(value):
            return value
        w: np.ndarray = max_at_k(value, np.concatenate(list(self._batches)), k=self.k)
        return w

    def leaves(self) -> list[np.ndarray]:
        """The batches."""
        return list(self._batches)

    def restore(self, leaves: Sequence[np.ndarray]) -> None:
        """Take the batches of ``leaves``."""
        self._batches.clear()
        self._batches.extend(np.asarray(leaf, np.float64) for leaf in leaves)
