"""For trainers of Tunix's kind: ``reward_fns`` over lists of prompts and completions.

The calling form is that of TRL (keyword columns of the data set), the result an array.
Usage:

    from rpg_jax.adapters import tunix

    def execute(prompts, completions, **columns):
        runs = [run_script(c) for c in completions]
        return [r.score for r in runs], [r.seconds for r in runs]

    learner = GRPOLearner(..., reward_fns=[tunix.reward_function(execute)])

Tunix has no "no reward": rows that ``execute`` masks out have reward 0. One rate per
process is kept: in a job of several processes each has a rate of its own, from its
share of the completions, unless one of them computes all rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from rpg_jax.adapters import trl
from rpg_jax.types import RateEstimator


class RewardFunction:
    """A Tunix reward function; see ``reward_function``.

    Attributes:
      relative: the ``RelativeReward`` with the state.
    """

    def __init__(self, inner: trl.RewardFunction) -> None:
        self.relative = inner.relative
        self.__name__ = inner.__name__
        self._inner = inner

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> Float[np.ndarray, " B"]:
        """Relative rewards, float32; 0 in rows that ``execute`` masked out."""
        scores = self._inner(prompts, completions, **columns)
        return np.array([0.0 if s is None else s for s in scores], np.float32)


def reward_function(
    execute: trl.Execute,
    estimator: RateEstimator | None = None,
    *,
    initial_rate: float | None = None,
) -> RewardFunction:
    """A Tunix reward function that charges for time; see ``trl.reward_function``."""
    inner = trl.reward_function(execute, estimator, initial_rate=initial_rate)
    return RewardFunction(inner)
