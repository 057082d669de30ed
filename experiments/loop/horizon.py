"""What is left of a budget: how many attempts a chain has before the run ends.

A function of what is on record alone: the seconds of the committed steps, and the
budget that a step was run under, which its numbers keep. So a run that is resumed or
replayed, or goes on under a larger budget, comes to the same number for each step.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.config.budget import CLOCKS, Budget
from experiments.config.plain import from_plain

#: Steps whose mean seconds stand for the next ones'.
RECENT = 5


class Horizon(NamedTuple):
    """What is left before a step."""

    left: float  # attempts of a chain, this step's included; inf: nothing is known
    share: float  # of the budget, used so far
    budget: Budget | None


UNKNOWN = Horizon(math.inf, 0.0, None)


class Pace:
    """Seconds of a run's recent steps, on all clocks."""

    def __init__(self) -> None:
        start = dict.fromkeys(CLOCKS, 0.0)
        self._used: collections.deque[Mapping[str, float]] = collections.deque(
            [start], maxlen=RECENT + 1
        )

    def add(self, used: Mapping[str, float]) -> None:
        """Note what the run had used when a step was committed."""
        self._used.append({clock: used[clock] for clock in CLOCKS})

    def horizon(self, budget: Budget | None, step: int) -> Horizon:
        """What is left before a step.

            left = (budget - used) / mean seconds of the recent steps

        or the steps left, if they are fewer. A chain makes one attempt a step.

        Args:
            budget: of the run; None: no end is known.
            step: number of the step, from 0.
        """
        if budget is None:
            return UNKNOWN
        used = {**self._used[-1], "steps": float(step)}
        left = math.inf
        if budget.steps is not None:
            left = float(budget.steps - step)
        if budget.seconds is not None and len(self._used) > 1:
            first = self._used[0][budget.clock]
            each = (used[budget.clock] - first) / (len(self._used) - 1)
            if each > 0:
                left = min(left, (budget.seconds - used[budget.clock]) / each)
        return Horizon(max(left, 1.0), budget.share(used), budget)


def budget_of(
    metrics: Mapping[str, Any] | None, budget: Budget | None
) -> Budget | None:
    """The budget that a step was run under, by its committed numbers; else ``budget``.

    Raises:
        ValueError: what is on record is no budget.
    """
    known = (metrics or {}).get("max_at_k")
    if known is None:
        return budget
    if known["budget"] is None:
        return None
    recorded: Budget = from_plain(Budget, known["budget"])
    return recorded
