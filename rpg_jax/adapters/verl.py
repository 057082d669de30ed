"""For trainers of verl's kind: a batched ``compute_score`` named in the configuration.

verl's batch reward manager calls one function with lists ``data_sources``,
``solution_strs``, ``ground_truths`` and ``extra_infos`` and takes a list of dicts with
a ``score``; the other entries are logged. Usage, in the file that
``custom_reward_function.path`` points at:

    from rpg_jax.adapters import verl

    def execute(data_sources, solution_strs, ground_truths, extra_infos, **kwargs):
        runs = [run_script(s) for s in solution_strs]
        return [r.score for r in runs], [r.seconds for r in runs]

    compute_score = verl.score_function(execute)

The rate lives in the process that computes rewards: use one reward worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rpg_jax.adapters.relative import RelativeReward
from rpg_jax.adapters.rows import measured, usable
from rpg_jax.types import RateEstimator

Execute = Callable[..., Sequence[Sequence[float]] | Mapping[str, Sequence[float]]]


class ScoreFunction:
    """A batched verl score function; see ``score_function``.

    Attributes:
      relative: the ``RelativeReward`` with the state.
    """

    __name__ = "compute_score"

    def __init__(self, execute: Execute, relative: RelativeReward) -> None:
        self.relative = relative
        self._execute = execute

    def __call__(
        self,
        data_sources: Sequence[Any],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Any],
        **kwargs: Any,
    ) -> list[dict[str, float]]:
        """A dict of numbers for each solution."""
        found = self._execute(
            data_sources=data_sources,
            solution_strs=solution_strs,
            ground_truths=ground_truths,
            extra_infos=extra_infos,
            **kwargs,
        )
        priced = self.relative.priced(**usable(measured(found, len(solution_strs))))
        columns = (np.where(np.isnan(v), 0.0, v).tolist() for v in priced[:3])
        return [
            {"score": score, "reward": reward, "seconds": second, "rate": priced.rate}
            for score, reward, second in zip(*columns, strict=True)
        ]


def score_function(
    execute: Execute,
    estimator: RateEstimator | None = None,
    *,
    initial_rate: float | None = None,
) -> ScoreFunction:
    """A batched verl score function that charges for time.

    Args:
      execute: verl's keyword lists -> (rewards, seconds), or with contexts and actions
        or as a dict as in ``rpg_jax.adapters.trl``, one each per solution.
      estimator: rate estimator; sum of rewards over sum of seconds if None.
      initial_rate: reward per second before there is data; see ``RelativeReward``.

    Returns:
      The function; its attribute ``relative`` is the ``RelativeReward`` with the state.
      In each of its dicts score = reward - rate * seconds, with the rate and the
      seconds that were charged; all but the rate are 0 in a row that is masked out.
    """
    return ScoreFunction(execute, RelativeReward(estimator, initial_rate=initial_rate))
