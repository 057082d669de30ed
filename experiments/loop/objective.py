"""What attempts earn under an arm's objective: their value, or w of max@k.

w depends on the run so far: on the values of its recent batches, on k and, if asked
for, on the best value of the chain. All of it follows from the records.
"""

from __future__ import annotations

import collections
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.config.objective import MaxAtK
from experiments.config.plain import to_plain
from experiments.loop.horizon import Horizon
from experiments.loop.learn import Rows
from rpg_jax.best_of_k import max_at_k, max_at_k_rank
from rpg_jax.smooth_cdf import CDF, kernel_cdf, max_at_k_of, pareto_tail_cdf

#: With fewer values no tail and no bandwidth says anything.
_FEW = 10


class BestOfK:
    """Values in, w out; k and b are a chain's, the distribution is the run's.

    Args:
        options: see ``MaxAtK``.
        chains: of the run.
    """

    def __init__(self, options: MaxAtK, chains: int):
        self.options = options
        self._batches: collections.deque[np.ndarray] = collections.deque(
            maxlen=options.batches
        )
        self._best = np.zeros(chains)
        self._k = 1.0

    def earned(self, rows: Rows, horizon: Horizon) -> tuple[np.ndarray, dict[str, Any]]:
        """w of a batch, [B], and the numbers that it was made of.

        The batch is part of the distribution. A chain's best is that from before it.
        """
        known = rows.known
        self._batches.append(rows.value[known])
        self._k = self.options.k(horizon.left, horizon.share)
        of_chain = self.options.best == "chain"
        best = self._best[rows.chain] if of_chain else np.zeros(len(known))
        w = np.zeros(len(known))
        if known.any():
            w[known] = np.maximum(self._w(rows.value) - self._w(best), 0.0)[known]
        np.maximum.at(self._best, rows.chain[known], rows.value[known])
        finite = np.isfinite(horizon.left)
        return w, {
            "k": self._k,
            "attempts_left": horizon.left if finite else None,
            "sample": sum(map(len, self._batches)),
            "best": best.tolist() if of_chain else 0.0,
            "w": w.tolist(),
            "budget": None if horizon.budget is None else to_plain(horizon.budget),
        }

    def worth(self, value: np.ndarray) -> np.ndarray:
        """w of other attempts' values as of now, [N]; the mean over the chains' b."""
        if not any(map(len, self._batches)):
            return value
        w = self._w(value)
        if self.options.best == "zero":
            return w
        beaten = self._w(self._best)
        return np.maximum(w[:, None] - beaten[None, :], 0.0).mean(axis=1)

    def _w(self, value: np.ndarray) -> np.ndarray:
        """w at b = 0; of a larger b it is what is left of their difference."""
        sample = np.concatenate(list(self._batches))
        form = self.options.form
        if form == "rank":
            return max_at_k_rank(value, sample, k=self._k)
        smooth = None if form == "value" else _smooth(form, sample)
        if smooth is None:
            return max_at_k(value, sample, k=self._k)
        positive = np.maximum(value, 0.0)  # the rule integrates upwards
        return np.asarray(max_at_k_of(positive, smooth, k=self._k), np.float64)


def _smooth(form: str, sample: np.ndarray) -> CDF | None:
    """A smooth distribution; None where the sample is too poor for one."""
    if len(sample) < _FEW or np.ptp(sample) == 0:
        return None
    fit = kernel_cdf if form == "kernel" else pareto_tail_cdf
    return fit(jnp.asarray(sample))
