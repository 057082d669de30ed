"""The price of time in verl: a reward function, or a reward manager for all of them.

The function goes where ``reward.custom_reward_function.path`` points at. verl calls it
once for each answer, in several workers:

    from rpg_jax.adapters import verl

    def execute(data_source, solution_str, ground_truth, extra_info, **kwargs):
        run = run_script(solution_str)
        return {"score": run.score, "seconds": run.seconds}

    compute_score = verl.score_function(execute)

The manager does the same for any function, verl's own ones included, and takes its
settings from the configuration:

    reward.reward_manager.source=importlib
    reward.reward_manager.module.path=pkg://rpg_jax.adapters.verl_manager
    reward.reward_manager.name=RewardRateManager
    algorithm.norm_adv_by_std_in_grpo=False

All workers share one rate, which a Ray actor keeps; outside of Ray it is this process's
own. ``execute`` may also return rewards alone: then its own seconds are measured. Rows
whose ``extra_info`` names another ``split`` than ``train`` are priced, and teach the
rate nothing. verl is not imported here.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rpg_jax.adapters.calls import is_async
from rpg_jax.adapters.relative import Rates, RelativeReward
from rpg_jax.adapters.rows import measured, usable
from rpg_jax.adapters.server import RewardRateServer
from rpg_jax.types import RateEstimator

__all__ = ["score_function", "shared_rates"]


def score_function(
    execute: Callable[..., Any],
    estimator: RateEstimator | None = None,
    *,
    initial_rate: float | None = None,
    rows_per_step: int | None = None,
    rates: Callable[[], Rates] | None = None,
) -> Any:
    """A verl score function that charges for time, async if ``execute`` is.

    Args:
      execute: verl's keyword arguments -> a reward, or a dict with ``score`` and, if it
        knows them, ``seconds``; other entries are kept. Called with lists
        (``solution_strs``), as verl's batch manager does, it returns lists as in
        ``rpg_jax.adapters.trl``.
      estimator: rate estimator of the form with lists, in one process; the policy's own
        recent rate if None.
      initial_rate: reward per second before there is data; 0 if None.
      rows_per_step: answers of a step, ``data.train_batch_size`` times
        ``actor_rollout_ref.rollout.n``: they are charged one price. If None the price
        moves with every answer.
      rates: makes what keeps the price; ``shared_rates`` if None.

    Returns:
      The function. It returns a dict: ``score`` is reward - rate * seconds; ``acc``,
      unless ``execute`` has one, and ``rpg_reward`` are the reward; ``rpg_seconds`` and
      ``rpg_rate`` are what was charged. All are 0 in a row without a reward.
    """
    make = rates or functools.partial(
        shared_rates, initial_rate=initial_rate, rows_per_step=rows_per_step
    )
    single = _Single(execute, functools.cache(make))
    relative = RelativeReward(estimator, initial_rate=initial_rate)

    async def compute_async(**row: Any) -> dict[str, Any]:
        return await single.priced_async(row)

    def compute_score(*lists: Any, **row: Any) -> Any:
        if lists or "solution_strs" in row:
            return _batch(execute, relative, *lists, **row)
        return single.priced(row)

    # verl asks for a function: of an object it would not see that its call is async.
    compute: Any = compute_async if is_async(execute) else compute_score
    compute.relative = relative
    return functools.update_wrapper(compute, execute, assigned=("__doc__",))


def shared_rates(
    *,
    name: str = "rpg_rate",
    initial_rate: float | None = None,
    rows_per_step: int | None = None,
    **options: Any,
) -> Rates:
    """One price for all workers of a Ray job; that of this process outside of Ray.

    Args:
        name: of the actor; jobs of one namespace that share it share the price.
        initial_rate: see ``RewardRateServer``, as the other options.
        rows_per_step: likewise.
        options: likewise.
    """
    settings = {"initial_rate": initial_rate, "rows_per_step": rows_per_step} | options
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return RewardRateServer(**settings)
    from rpg_jax.adapters.ray_server import RayRates

    return RayRates(name, **settings)


class _Single:
    """A function of one answer and its price."""

    def __init__(self, execute: Callable[..., Any], rates: Callable[[], Rates]) -> None:
        self._execute, self._rates = execute, rates

    def priced(self, row: dict[str, Any]) -> dict[str, Any]:
        """The dict of one answer."""
        start = time.perf_counter()
        found = self._execute(**row)
        reward, seconds, extra = _found(found, time.perf_counter() - start)
        rate = self._rates().charge(reward, seconds, update=_trains(row))
        return _scored(reward, seconds, rate, extra)

    async def priced_async(self, row: dict[str, Any]) -> dict[str, Any]:
        """``priced`` of an async function."""
        start = time.perf_counter()
        found = await self._execute(**row)
        reward, seconds, extra = _found(found, time.perf_counter() - start)
        rates: Any = self._rates()
        update = _trains(row)
        if hasattr(rates, "asked"):  # Ray's: other answers go on meanwhile
            rate = await rates.asked(reward, seconds, update=update)
        else:
            rate = rates.charge(reward, seconds, update=update)
        return _scored(reward, seconds, rate, extra)


def _found(found: Any, took: float) -> tuple[float, float, dict[str, Any]]:
    """Reward, seconds and what else a function returned."""
    extra: dict[str, Any] = {}
    if isinstance(found, Mapping):
        extra = dict(found)
        found, took = extra.pop("score"), extra.pop("seconds", took)
    elif isinstance(found, tuple):
        found, took = found
    reward = math.nan if found is None else float(found)
    return reward, math.nan if took is None else float(took), extra


def _scored(
    reward: float, seconds: float, rate: float, extra: dict[str, Any]
) -> dict[str, Any]:
    """What verl takes: every answer has the same keys, and numbers."""
    if not (math.isfinite(reward) and math.isfinite(seconds)):
        reward = seconds = 0.0
    priced = {
        "score": reward - rate * seconds,
        "rpg_reward": reward,
        "rpg_seconds": seconds,
        "rpg_rate": float(rate),
    }
    return {"acc": reward} | extra | priced


def _trains(row: dict[str, Any]) -> bool:
    """False for an answer of a validation set."""
    extra = row.get("extra_info")
    split = extra.get("split") if isinstance(extra, Mapping) else None
    return split in (None, "train")


def _batch(
    execute: Callable[..., Any],
    relative: RelativeReward,
    data_sources: Any,
    solution_strs: Any,
    ground_truths: Any,
    extra_infos: Any,
    **kwargs: Any,
) -> list[dict[str, float]]:
    """The form with lists: a dict of numbers for each answer."""
    found = execute(
        data_sources=data_sources,
        solution_strs=solution_strs,
        ground_truths=ground_truths,
        extra_infos=extra_infos,
        **kwargs,
    )
    rows = usable(measured(found, len(solution_strs)))
    infos = list(extra_infos) if extra_infos is not None else []
    update = all(_trains({"extra_info": info}) for info in infos)
    priced = relative.priced(**rows, update=update)
    reward, seconds = (
        np.where(np.isnan(v), 0.0, v).tolist() for v in (priced.reward, priced.seconds)
    )
    return [
        _scored(r, s, priced.rate, {}) for r, s in zip(reward, seconds, strict=True)
    ]
