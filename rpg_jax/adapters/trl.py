"""For trainers of TRL's kind: ``reward_funcs`` is a list of Python functions.

Such a function gets ``prompts``, ``completions`` and the data set's columns as keyword
lists and returns a list of floats, None where it has nothing to say. Usage:

    from rpg_jax import niw_slots
    from rpg_jax.adapters import trl

    def execute(prompts, completions, **columns):
        runs = [run_script(c) for c in completions]
        return [r.score for r in runs], [r.seconds for r in runs]

    reward = trl.reward_function(execute, niw_slots(num_slots=64))
    trainer = GRPOTrainer(..., reward_funcs=[reward])

Estimators with contexts (``by_context``, per-cell ``niw``) need a third list from
``execute``: the context of each completion, such as the number of its prompt; and a
fourth, its action, where the estimator has actions. ``execute`` may also return a dict
of lists with the arguments of ``RelativeReward``:

    return {
        "reward": [r.score for r in runs],
        "duration": [r.seconds for r in runs],
        "charged": [r.seconds if r.ok else LIMIT_S for r in runs],  # failures
        "mask": [not r.infrastructure_error for r in runs],
    }

A row with a false ``mask`` stays out of the estimator and has the reward None.

The trainer should not divide by the group's standard deviation (``scale_rewards``
off): that would undo the price of time. ``reward.relative.state_dict()`` goes into
checkpoints, ``reward.relative(..., update=False)`` prices an evaluation.

One rate per process is kept: in a job of several ranks each has a rate of its own, from
its share of the completions, unless one process computes all rewards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rpg_jax.adapters.relative import RelativeReward, measured
from rpg_jax.types import RateEstimator

Execute = Callable[..., Sequence[Sequence[float]] | Mapping[str, Sequence[float]]]


class RewardFunction:
    """A TRL reward function; see ``reward_function``.

    Attributes:
      relative: the state: rate and estimator, for checkpoints and evaluations.
    """

    def __init__(self, execute: Execute, relative: RelativeReward, name: str) -> None:
        self.relative = relative
        self.__name__ = name
        self._execute = execute

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Relative rewards; None in rows that ``execute`` masked out."""
        found = self._execute(prompts=prompts, completions=completions, **columns)
        scores = self.relative(**measured(found, len(completions))).tolist()
        return [None if math.isnan(score) else score for score in scores]


def reward_function(
    execute: Execute,
    estimator: RateEstimator | None = None,
    *,
    initial_rate: float | None = None,
    name: str = "relative_reward",
) -> RewardFunction:
    """A TRL reward function that charges for time.

    Args:
      execute: (prompts, completions, **columns) -> (rewards, seconds) or (rewards,
        seconds, contexts) or (rewards, seconds, contexts, actions), one each per
        completion; or a dict with ``reward``, ``duration`` and, optionally,
        ``context``, ``action``, ``charged`` and ``mask``.
      estimator: rate estimator; sum of rewards over sum of seconds if None.
      initial_rate: reward per second before there is data; see ``RelativeReward``.
      name: what the trainer logs it under.

    Returns:
      The function; its attribute ``relative`` is the ``RelativeReward`` with the state.
    """
    relative = RelativeReward(estimator, initial_rate=initial_rate)
    return RewardFunction(execute, relative, name)
