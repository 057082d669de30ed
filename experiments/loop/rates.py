"""Whose rate: what a second earns under the greedy policy, and under the policy's own.

Both are kept for every arm, whichever is the price, so that a record shows how high a
price the other would have been.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from experiments.config.arms import Arm, price
from experiments.config.rate import RateOptions
from experiments.loop.learn import Rows, on_policy_rate
from experiments.loop.price import RateModel, Worth


class Rates(NamedTuple):
    """Of one kind of earnings, per second."""

    greedy: float = 0.0  # the rate model's
    own: float = 0.0  # recent batches
    on_policy: float = 0.0  # the last batch

    def price(self, choice: str, arm: Arm) -> float:
        """The price of a second that an arm takes from them."""
        return price(
            choice,
            arm,
            estimated=self.greedy,
            on_policy=self.on_policy,
            own=self.own,
        )


class OwnRate:
    """What a second has earned lately under the policy as it acts.

        rate = sum_t a^(T-t) sum r / sum_t a^(T-t) sum delta

    Args:
        decay: a, weight of a batch against the next one's.

    Source: docs/concepts/best-score.md, "The price".
    """

    def __init__(self, decay: float):
        self.decay = decay
        self._earned = self._seconds = 0.0

    @property
    def rate(self) -> float:
        """Per second, at least 0; 0 before data."""
        return max(self._earned / self._seconds, 0.0) if self._seconds > 0 else 0.0

    def observe(self, earned: np.ndarray, seconds: np.ndarray) -> None:
        """Add a batch, both [B]; one without attempts leaves the rate as it is."""
        if len(earned):
            self._earned = self.decay * self._earned + float(earned.sum())
            self._seconds = self.decay * self._seconds + float(seconds.sum())


class RateBook:
    """The rates of one kind of earnings, batch by batch.

    Args:
        options: of the rates.
        chains: of the run.
    """

    def __init__(self, options: RateOptions, chains: int):
        self.model = RateModel(options, chains=chains)
        self._own = OwnRate(options.own_decay)
        self._on_policy = 0.0

    def observe(
        self,
        rows: Rows,
        first: np.ndarray,
        earned: np.ndarray,
        *,
        worth: Worth | None = None,
    ) -> tuple[Rates, Rates]:
        """Take in a batch; the rates that it pays, and those after it.

        Args:
            rows: the batch.
            first: rows that count. A repeat earns nothing new, and its seconds were
                not spent again.
            earned: by each row, shape [B].
            worth: values -> what they earn as of now; the values themselves if None.
                The greedy rate is that of past attempts at what they are worth now.
        """
        earlier = self.model.seen > 0
        before = Rates(self.model.rate, self._own.rate)
        self.model.observe(
            rows.value, rows.seconds, rows.valid, first, rows.chain, worth=worth
        )
        if first.any():
            counted = rows._replace(value=earned, known=first)
            self._on_policy = on_policy_rate(counted)
        self._own.observe(earned[first], rows.seconds[first])
        after = Rates(self.model.rate, self._own.rate, self._on_policy)
        if self.model.options.leave_one_out and earlier:
            return before._replace(on_policy=self._on_policy), after
        return after, after
