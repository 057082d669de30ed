"""How noisy each cell's relative reward is: scatter per cell, shrunk to the pooled one.

What a NIW over (reward, duration) in every cell says about the variance of
r - rho delta, kept as centred scatters so that rho may change at every decision.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from bandit.base import (
    CellSums,
    GreedyRate,
    Index,
    PerAction,
    Scalar,
    check_sizes,
    one_hot,
)


class NoisyCells(NamedTuple):
    """Cell statistics of all contexts and what is pooled over them.

    Attributes:
      table: sum of rewards, sum of durations, count, and the centred scatter of
        (reward, duration): rr, rd, dd.
      pooled: that scatter summed over all cells but SKIP's, and its degrees of freedom:
        rr, rd, dd, dof.
      greedy: the plug-in rate's state.
    """

    table: Float[Array, "contexts 6 actions"]
    pooled: Float[Array, "4"]
    greedy: GreedyRate

    @classmethod
    def empty(cls, num_contexts: int, num_actions: int) -> "NoisyCells":
        """Before any data."""
        check_sizes(num_contexts, num_actions)
        return cls(
            jnp.zeros((num_contexts, 6, num_actions)),
            jnp.zeros(4),
            GreedyRate.empty(num_contexts),
        )

    def cells(self, context: Index) -> CellSums:
        """Sums of one context's cells."""
        return CellSums(*self.table[context, :3])

    def variance(
        self, context: Index, *, prior_count: float, prior_sd: float
    ) -> PerAction:
        """Variance of r - rho delta in each cell of a context, at the plug-in rate.

        (S(a) + k s^2)/(n(a) - 1 + k): the cell's scatter and k further degrees of
        freedom at the pooled variance s^2.

        Args:
          context: x.
          prior_count: k > 0.
          prior_sd: standard deviation assumed before any scatter is seen, worth one
            degree of freedom of the pooled variance.

        Returns:
          Variances, > 0.
        """
        rate = self.greedy.rate
        common = quadratic(self.pooled, rate) + prior_sd**2
        common = common / (self.pooled[3] + 1.0)
        row = self.table[context]
        freedom = jnp.maximum(row[2], 1.0) - 1.0 + prior_count
        return (quadratic(row[3:], rate) + prior_count * common) / freedom

    def add(
        self,
        context: Index,
        action: Index,
        reward: Scalar,
        duration: Scalar,
    ) -> "NoisyCells":
        """The statistics after one more sample."""
        row = self.table[context]
        cells = CellSums(row[0], row[1], row[2])
        num_actions = row.shape[-1]
        visits = cells.visits[action]
        safe = jnp.maximum(visits, 1.0)
        # Welford: the scatter grows by n/(n+1) of the squared deviation.
        dr = reward - cells.reward[action] / safe
        dd = duration - cells.duration[action] / safe
        grown = jnp.stack([dr * dr, dr * dd, dd * dd]) * (visits / (visits + 1.0))
        cells = cells.add(action, reward, duration)
        scatter = row[3:] + grown[:, None] * one_hot(action, num_actions)[None]
        # SKIP never varies and would only dilute the pooled variance.
        informative = (action != num_actions - 1) & (visits > 0)
        return NoisyCells(
            table=self.table.at[context].set(
                jnp.concatenate([jnp.stack(cells), scatter])
            ),
            pooled=self.pooled + jnp.where(informative, jnp.append(grown, 1.0), 0.0),
            greedy=self.greedy.refresh(context, cells),
        )


def quadratic(scatter: Float[Array, "..."], rate: Scalar) -> Float[Array, "..."]:
    """Scatter of r - rate delta from rows rr, rd, dd and others; never below 0."""
    rr, rd, dd = scatter[0], scatter[1], scatter[2]
    return jnp.maximum(rr - 2 * rate * rd + rate * rate * dd, 0.0)
