"""The price of time in Tunix: one line for GRPO, DrGRPO and RLOO learners.

    from rpg_jax.adapters import tunix

    learner = DrGRPOLearner(..., reward_fns=[tunix.price(reward_fn)])

The calling form is that of TRL (keyword columns of the data set), and whose seconds
are charged is as there; the result is an array. Tunix says in the column ``mode``
whether it evaluates: then the rate learns nothing. It has no "no reward": a row without
one has reward 0.

Tunix's ``grpo`` divides by the deviation of each group, which undoes the price: take
``DrGRPOLearner``, or ``advantage_estimator="rloo"``. Its checkpoints have no place for
a reward function's state: save and load ``reward.relative`` beside them. One rate per
process is kept; a job of several gives each of them a client of one
``RewardRateServer``. Tunix is not imported here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from rpg_jax.adapters.calls import Seconds, call
from rpg_jax.adapters.relative import RelativeReward
from rpg_jax.adapters.trl import Execute
from rpg_jax.types import RateEstimator


class RewardFunction:
    """A Tunix reward function; see ``price``.

    Attributes:
      relative: the ``RelativeReward`` with the state.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        relative: RelativeReward,
        name: str,
        *,
        seconds: Seconds = None,
        pairs: bool = False,
    ) -> None:
        self.relative = relative
        self.__name__ = name
        # Tunix looks at the signature for settings that the function asks for.
        self.__wrapped__ = function
        self._options: dict[str, Any] = {"seconds": seconds, "pairs": pairs}
        self._warned = False

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> Float[np.ndarray, " B"]:
        """Relative rewards, float32; 0 in rows without a reward."""
        columns |= {"prompts": prompts, "completions": completions}
        rows = call(self.__wrapped__, columns, **self._options)
        update = "eval" not in str(columns.get("mode", "")).lower()
        priced = self.relative.priced(**rows, update=update)
        return np.asarray(np.nan_to_num(priced.score, nan=0.0), np.float32)


def price(
    reward_fn: Callable[..., Any],
    *,
    seconds: Seconds = None,
    name: str | None = None,
    **options: Any,
) -> RewardFunction:
    """A reward function of Tunix's that charges for time.

    Args:
        reward_fn: keyword lists -> rewards, or rewards and seconds.
        seconds: name of the column that has the seconds of each completion, or a
            function of the columns; None as ``adapters.calls`` says.
        name: what the learner logs it under; the function's if None.
        options: of ``RelativeReward``.
    """
    if name is None:
        name = getattr(reward_fn, "__name__", type(reward_fn).__name__)
    return RewardFunction(reward_fn, RelativeReward(**options), name, seconds=seconds)


def reward_function(
    execute: Execute,
    estimator: RateEstimator | None = None,
    *,
    initial_rate: float | None = None,
) -> RewardFunction:
    """``price`` for a function that executes; see ``trl.reward_function``."""
    relative = RelativeReward(estimator, initial_rate=initial_rate)
    return RewardFunction(execute, relative, "relative_reward", pairs=True)


def attach(learner: Any, *, seconds: Seconds = None, **options: Any) -> Any:
    """Charge a learner's only reward function for time, and warn of its scaling.

    Args:
        learner: a learner of ``tunix.rl``, before ``train``.
        seconds: as in ``price``.
        options: of ``RelativeReward``.

    Returns:
        The ``RelativeReward`` with the state.

    Raises:
        ValueError: it has several reward functions: give the one to ``price``.
    """
    manager = learner.reward_manager
    if len(manager.reward_fns) != 1:
        raise ValueError(
            f"{len(manager.reward_fns)} reward functions: price one of them, the one "
            "that executes, with tunix.price"
        )
    priced = price(manager.reward_fns[0], seconds=seconds, **options)
    manager.reward_fns = [priced]
    warn_of_scaling(learner.algo_config)
    return priced.relative


def warn_of_scaling(config: Any) -> None:
    """Warn where advantages are divided by the deviation of a group."""
    if getattr(config, "advantage_estimator", None) != "grpo":
        return
    warnings.warn(
        "Tunix's grpo divides rewards by their standard deviation in each group: where "
        "a group's rewards are equal, differences of its seconds then train as hard as "
        "a right answer against a wrong one. Take DrGRPOLearner and DrGRPOConfig",
        UserWarning,
        stacklevel=2,
    )
