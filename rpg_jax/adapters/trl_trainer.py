"""What a price needs of the TRL trainer that calls it: mode, logger, checkpoints.

A reward function learns who calls it from ``log_metric``, a bound method that TRL hands
to every reward function.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from rpg_jax.adapters.relative import Priced, RelativeReward
from rpg_jax.adapters.state import from_plain, to_plain

CALLBACK = "RateCallback"


def trainer_of(columns: dict[str, Any]) -> Any:
    """The trainer that a call comes from; None if it is not one of TRL's."""
    trainer = getattr(columns.get("log_metric"), "__self__", None)
    return trainer if hasattr(trainer, "callback_handler") else None


def is_training(trainer: Any) -> bool:
    """False in an evaluation; calls from elsewhere are training."""
    return trainer is None or bool(trainer.model.training)


def log_price(log_metric: Callable[[str, float], None] | None, priced: Priced) -> None:
    """Log a batch's price through the trainer, which averages over ranks."""
    known = ~np.isnan(priced.score)
    if log_metric is None:
        return
    log_metric("rpg/rate", priced.rate)
    log_metric("rpg/skipped", float((~known).sum()))
    if known.any():
        log_metric("rpg/seconds", float(priced.seconds[known].mean()))
        log_metric("rpg/reward", float(priced.reward[known].mean()))
        log_metric("rpg/price_share", price_share(priced))


def price_share(priced: Priced) -> float:
    """Share of the spread of a batch's relative rewards that its price makes.

    mean |p - mean p| / (mean |r - mean r| + mean |p - mean p|),  p = rate * seconds
    """
    known = ~np.isnan(priced.score)
    reward, cost = priced.reward[known], priced.rate * priced.seconds[known]
    if not reward.size:
        return 0.0
    of_reward = float(np.abs(reward - reward.mean()).mean())
    of_cost = float(np.abs(cost - cost.mean()).mean())
    total = of_reward + of_cost
    return of_cost / total if total > 0 else 0.0


def bind(trainer: Any, name: str, relative: RelativeReward) -> None:
    """Save a price with the trainer's checkpoints, and restore it if it was saved.

    The first call for a trainer also warns where the trainer would undo the price.
    """
    callback = _callback(trainer)
    if callback.prices.get(name) is relative:
        return
    callback.prices[name] = relative
    callback.restore(trainer.state)
    # A trainer that runs already asks for every callback's entry.
    trainer.state.stateful_callbacks[CALLBACK] = callback.state()


def _callback(trainer: Any) -> Any:
    """The trainer's callback; a new one, and a warning if due, the first time."""
    for callback in trainer.callback_handler.callbacks:
        if type(callback).__name__ == CALLBACK:
            return callback
    warn_of_scaling(trainer.args)
    callback = _callback_class()()
    trainer.add_callback(callback)
    return callback


def warn_of_scaling(args: Any) -> None:
    """Warn where advantages are divided by the deviation of a group."""
    if getattr(args, "multi_objective_aggregation", None) == "normalize_then_sum":
        setting = "multi_objective_aggregation='sum_then_normalize'"
    elif getattr(args, "scale_rewards", "none") in ("group", True):
        setting = "scale_rewards='none'"
    else:
        return
    warnings.warn(
        "this trainer divides rewards by their standard deviation in each group: where "
        "a group's rewards are equal, differences of its seconds then train as hard as "
        f"a right answer against a wrong one. Set {setting}",
        UserWarning,
        stacklevel=2,
    )


def _callback_class() -> Any:
    """The callback's class; made here, so that importing this needs no trainer."""
    from transformers.trainer_callback import ExportableState, TrainerCallback

    # Saved in the checkpoint's own trainer_state.json, under the class's name.
    return type(CALLBACK, (_Prices, TrainerCallback, ExportableState), {})


class _Prices:
    """Prices by name; what a callback of transformers does with them."""

    def __init__(self) -> None:
        self.prices: dict[str, RelativeReward] = {}
        self._pending: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        """For ``trainer_state.json``."""
        saved = {n: to_plain(p.state_dict()) for n, p in self.prices.items()}
        return {"args": {}, "attributes": {"saved": self._pending | saved}}

    def on_train_begin(
        self, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> None:
        """Restore what a checkpoint had."""
        self.restore(state)
        state.stateful_callbacks[CALLBACK] = self.state()

    def restore(self, state: Any) -> None:
        """Load the prices that a trainer's state has; later ones when they come."""
        entry = (state.stateful_callbacks or {}).get(CALLBACK)
        if isinstance(entry, dict):
            self._pending |= entry["attributes"].get("saved", {})
        for name, relative in self.prices.items():
            if name in self._pending:
                relative.load_state_dict(from_plain(self._pending.pop(name)))
