"""``attach``: a column with the price of time, beside the rewards of a TRL trainer.

The trainer's functions are called through a recorder, which notes rewards and seconds.
The column comes last: it sums the rewards by their weights, prices the sum and returns
-rate * seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rpg_jax.adapters.calls import Seconds, call, call_async, given_seconds, is_async
from rpg_jax.adapters.ranks import gather_ranks
from rpg_jax.adapters.relative import RelativeReward
from rpg_jax.adapters.rows import numbers, usable
from rpg_jax.adapters.trl_trainer import bind, is_training, log_price, trainer_of

NAME = "rpg_price"


def attach(trainer: Any, *, seconds: Seconds = None, **options: Any) -> RelativeReward:
    """Charge a TRL trainer's rewards for time: GRPO and RLOO, as they are built.

    All its reward functions and reward models are in the rate, by their weights. A row
    takes the seconds of the column or of its environment, where there are some, else
    the sum of what its functions took. Reward models cost nothing: they are not what
    the policy does.

    Args:
        trainer: a ``GRPOTrainer`` or ``RLOOTrainer``, before ``train()``.
        seconds: name of the column that has the seconds of each completion, or a
            function of the columns; None as ``adapters.trl`` says.
        options: of ``RelativeReward``.

    Returns:
        The price, with its state.

    Raises:
        TypeError: no trainer of this kind; the message says what it lacks.
        ValueError: the trainer has a price already.
    """
    _check(trainer)
    if options.get("server") is None:
        options = {"gather": gather_ranks} | options
    relative = RelativeReward(**options)
    record = _Record([float(weight) for weight in trainer.reward_weights])
    for index, function in enumerate(trainer.reward_funcs):
        if hasattr(function, "register_forward_hook"):
            function.register_forward_hook(record.of_model(index))
        else:
            trainer.reward_funcs[index] = _recorder(function, record, index, seconds)
    waits = any(is_async(function) for function in trainer.reward_funcs)
    column = (AsyncPriceColumn if waits else PriceColumn)(record, relative, seconds)
    trainer.reward_funcs.append(column)
    trainer.reward_func_names.append(NAME)
    trainer.reward_processing_classes.append(None)
    weights = trainer.reward_weights
    trainer.reward_weights = weights.new_tensor([*record.weights, 1.0])
    bind(trainer, NAME, relative)
    return relative


def _check(trainer: Any) -> None:
    needs = (
        *("reward_funcs", "reward_func_names", "reward_processing_classes"),
        *("reward_weights", "callback_handler", "_log_metric"),
    )
    lacks = [name for name in needs if not hasattr(trainer, name)]
    if lacks:
        raise TypeError(
            f"{type(trainer).__name__} has no {', '.join(lacks)}: attach takes the "
            "GRPO and RLOO trainers of trl 1.16; for others give each reward function "
            "to trl.price"
        )
    if NAME in trainer.reward_func_names:
        raise ValueError("this trainer has a price already")


class _Record:
    """What the functions of a batch returned, until the price column takes it."""

    def __init__(self, weights: list[float]) -> None:
        self.weights = weights
        self.rows: dict[int, dict[str, Any]] = {}
        self.running: list[asyncio.Future[None]] = []

    def of_model(self, index: int) -> Callable[..., None]:
        """A forward hook that notes a reward model's rewards."""

        def hook(module: Any, inputs: Any, output: Any) -> None:
            reward = output.logits[:, 0].detach().float().cpu().numpy()
            self.rows[index] = {"reward": reward.astype(np.float64)}

        return hook

    def taken(self, number: int, given: list[float] | None) -> dict[str, Any]:
        """The batch as ``RelativeReward.priced`` takes it; the record is empty then."""
        rows, self.rows, self.running = self.rows, {}, []
        total, scored = np.zeros(number), np.zeros(number, bool)
        seconds, out = np.zeros(number), dict[str, Any]()
        for index, each in sorted(rows.items()):
            if len(each["reward"]) != number:
                raise ValueError(f"{len(each['reward'])} rewards for {number} rows")
            known = np.isfinite(each["reward"])
            if "mask" in each:
                # A row that this function says nothing about took its seconds.
                known &= np.asarray(each["mask"], bool)
                spent = np.nan_to_num(each["duration"])
                seconds += spent
                charge = np.asarray(each.get("charged", spent), np.float64)
                out["charged"] = out.get("charged", 0.0) + np.nan_to_num(charge)
            total += np.where(known, self.weights[index] * each["reward"], 0.0)
            scored |= known
            out |= {n: each[n] for n in ("context", "action") if n in each}
        if given is not None:
            seconds = numbers(given)
            out.pop("charged", None)
        return usable(out | {"reward": total, "duration": seconds, "mask": scored})


def _recorder(
    function: Callable[..., Any], record: _Record, index: int, seconds: Seconds
) -> Callable[..., Any]:
    form = AsyncRecorder if is_async(function) else Recorder
    return form(function, record, index, seconds)


class Recorder:
    """A reward function whose rows are noted for the price column."""

    def __init__(
        self,
        function: Callable[..., Any],
        record: _Record,
        index: int,
        seconds: Seconds,
    ) -> None:
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._function, self._record, self._index = function, record, index
        self._seconds = seconds

    def __call__(self, **columns: Any) -> Any:
        """The function's own rewards."""
        rows = call(self._function, columns, seconds=self._seconds)
        return self._noted(rows)

    def _noted(self, rows: dict[str, Any]) -> list[float | None]:
        self._record.rows[self._index] = rows
        return [
            float(reward) if kept else None
            for reward, kept in zip(rows["reward"], rows["mask"], strict=True)
        ]


class AsyncRecorder(Recorder):
    """``Recorder`` of an async function."""

    async def __call__(self, **columns: Any) -> list[float | None]:
        """The function's own rewards."""
        done = asyncio.get_running_loop().create_future()
        self._record.running.append(done)
        try:
            rows = await call_async(self._function, columns, seconds=self._seconds)
            return self._noted(rows)
        finally:
            done.set_result(None)


class PriceColumn:
    """-rate * seconds of each row, as a reward function that comes last."""

    def __init__(
        self, record: _Record, relative: RelativeReward, seconds: Seconds
    ) -> None:
        self.__name__ = NAME
        self.relative = relative
        self._record, self._seconds = record, seconds

    def __call__(self, **columns: Any) -> Any:
        """What each row is charged; None where no function has a reward."""
        trainer = trainer_of(columns)
        given = given_seconds(columns, self._seconds)
        rows = self._record.taken(len(columns["completions"]), given)
        step = getattr(columns.get("trainer_state"), "global_step", None)
        priced = self.relative.priced(**rows, update=is_training(trainer), step=step)
        log_price(columns.get("log_metric"), priced)
        # Under an objective the column also turns the reward into what it is worth.
        charges = (priced.score - rows["reward"]).tolist()
        return [None if math.isnan(charge) else charge for charge in charges]


class AsyncPriceColumn(PriceColumn):
    """``PriceColumn`` that waits for async functions, which TRL runs together."""

    async def __call__(self, **columns: Any) -> list[float | None]:
        """As ``PriceColumn``."""
        await asyncio.sleep(0)  # all of them have started after that
        await asyncio.gather(*self._record.running)
        charges: list[float | None] = PriceColumn.__call__(self, **columns)
        return charges
