"""The price of time in TRL: one line for GRPO, RLOO and asynchronous GRPO.

    from rpg_jax.adapters import trl

    trainer = GRPOTrainer(..., reward_funcs=[trl.price(reward_fn)])

or, where there are several reward functions or reward models,

    trainer = GRPOTrainer(..., reward_funcs=[accuracy, style])
    trl.attach(trainer)

``price`` subtracts rate * seconds from what one function returns. ``attach`` adds a
column ``rpg_price`` to the trainer's rewards, charged on their weighted sum, and leaves
the others as they are.

Whose seconds: those that the function returns beside its rewards (two lists, or a dict
with ``reward`` and ``duration``), a column ``seconds``, the attribute ``seconds`` of
the rows' environments, or else those that each row's call takes: ``adapters.calls``.

The rate is the policy's own recent one, the same on all ranks. It learns from training
batches only, is saved in the trainer's checkpoints and restored with them, and is
logged as ``rpg/rate``, with ``rpg/seconds``, ``rpg/reward`` and ``rpg/price_share``. A
row for which a function returns None or NaN is not charged, and counted in
``rpg/skipped``.

TRL is not imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rpg_jax.adapters.calls import Seconds, call, call_async, is_async
from rpg_jax.adapters.ranks import gather_ranks
from rpg_jax.adapters.relative import RelativeReward
from rpg_jax.adapters.trl_column import attach
from rpg_jax.adapters.trl_trainer import bind, is_training, log_price, trainer_of
from rpg_jax.types import RateEstimator

__all__ = [
    "AsyncRewardFunction",
    "RewardFunction",
    "attach",
    "price",
    "reward_function",
]

Execute = Callable[..., Sequence[Sequence[float]] | Mapping[str, Sequence[float]]]


class RewardFunction:
    """A TRL reward function that charges for time; see ``price``.

    It pickles where the function does, as asynchronous GRPO needs it.

    Attributes:
      relative: the state: rate and estimator, for checkpoints and evaluations.
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
        self._function = function
        self._options: dict[str, Any] = {"seconds": seconds, "pairs": pairs}

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> Any:
        """Relative rewards; None in rows that have no reward or are masked out."""
        columns |= {"prompts": prompts, "completions": completions}
        return self._priced(call(self._function, columns, **self._options), columns)

    def _priced(
        self, rows: dict[str, Any], columns: dict[str, Any]
    ) -> list[float | None]:
        trainer = trainer_of(columns)
        if trainer is not None:
            bind(trainer, self.__name__, self.relative)
        priced = self.relative.priced(
            **rows, update=is_training(trainer), step=_step(columns)
        )
        log_price(columns.get("log_metric"), priced)
        scores = priced.score.tolist()
        return [None if math.isnan(score) else score for score in scores]


class AsyncRewardFunction(RewardFunction):
    """``RewardFunction`` of an async function; TRL awaits it."""

    async def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """As ``RewardFunction``."""
        columns |= {"prompts": prompts, "completions": completions}
        rows = await call_async(self._function, columns, **self._options)
        return self._priced(rows, columns)


def price(
    reward_fn: Callable[..., Any],
    *,
    seconds: Seconds = None,
    name: str | None = None,
    **options: Any,
) -> RewardFunction:
    """A reward function of TRL's that charges for time.

    Args:
        reward_fn: a reward function as TRL takes it, sync or async: keyword lists ->
            rewards, or rewards and seconds.
        seconds: name of the column that has the seconds of each completion, or a
            function of the columns; None as the module says.
        name: what the trainer logs it under; the function's if None.
        options: of ``RelativeReward``: estimator, initial_rate, memory, objective,
            server. All ranks charge one price, whatever they are.

    Returns:
        The function; its attribute ``relative`` is the ``RelativeReward``.
    """
    return _wrapped(reward_fn, name, seconds=seconds, pairs=False, options=options)


def reward_function(
    execute: Execute,
    estimator: RateEstimator | None = None,
    *,
    initial_rate: float | None = None,
    name: str = "relative_reward",
) -> RewardFunction:
    """``price`` for a function that executes completions and returns their seconds.

    Args:
      execute: (prompts, completions, **columns) -> (rewards, seconds) or (rewards,
        seconds, contexts) or (rewards, seconds, contexts, actions), one each per
        completion; or a dict with ``reward``, ``duration`` and, optionally,
        ``context``, ``action``, ``charged`` and ``mask``. Called once for all rows.
      estimator: rate estimator; the policy's own recent rate if None.
      initial_rate: reward per second before there is data; see ``RelativeReward``.
      name: what the trainer logs it under.

    Returns:
      The function; its attribute ``relative`` is the ``RelativeReward`` with the state.
    """
    options = {"estimator": estimator, "initial_rate": initial_rate}
    return _wrapped(execute, name, seconds=None, pairs=True, options=options)


def _wrapped(
    function: Callable[..., Any],
    name: str | None,
    *,
    seconds: Seconds,
    pairs: bool,
    options: dict[str, Any],
) -> RewardFunction:
    if options.get("server") is None:
        options = {"gather": gather_ranks} | options
    form = AsyncRewardFunction if is_async(function) else RewardFunction
    if name is None:
        name = getattr(function, "__name__", type(function).__name__)
    relative = RelativeReward(**options)
    return form(function, relative, name, seconds=seconds, pairs=pairs)


def _step(columns: dict[str, Any]) -> int | None:
    """The trainer's step, where it says which one it is."""
    step = getattr(columns.get("trainer_state"), "global_step", None)
    return None if step is None else int(step)
