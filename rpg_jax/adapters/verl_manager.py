"""``RewardRateManager``: verl's reward manager with the price of time.

Imported by verl, from its configuration (see ``adapters.verl``), and by nothing else:
it imports verl. Settings, all optional, stand under ``reward.reward_kwargs.rpg``:

    +reward.reward_kwargs.rpg.memory=512        # decisions that the rate remembers
    +reward.reward_kwargs.rpg.initial_rate=0.01 # reward per second before any data
    +reward.reward_kwargs.rpg.path=FILE         # where the rate is kept

The rate is kept in ``rpg_rate.json`` beside the trainer's checkpoints after every step,
and read from there when a job resumes. A step is ``data.train_batch_size`` prompts
times ``actor_rollout_ref.rollout.n`` answers.
"""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from typing import Any

from rpg_jax.adapters.verl import score_function, shared_rates

_naive: Any = importlib.import_module(
    "verl.experimental.reward_loop.reward_manager.naive"
)
_registry: Any = importlib.import_module(
    "verl.experimental.reward_loop.reward_manager.registry"
)


def settings_of(config: Any) -> dict[str, Any]:
    """Options of ``RewardRateServer`` for a verl configuration."""
    given = (config.reward.get("reward_kwargs") or {}).get("rpg") or {}
    options = {
        "rows_per_step": config.data.train_batch_size
        * config.actor_rollout_ref.rollout.n
    } | dict(given)
    trainer = config.get("trainer") or {}
    folder = trainer.get("default_local_dir")
    if folder and "path" not in options:
        options["path"] = os.path.join(os.path.abspath(folder), "rpg_rate.json")
    return options


def warn_of_scaling(config: Any) -> None:
    """Warn where advantages are divided by the deviation of a group."""
    algorithm = config.get("algorithm") or {}
    grouped = str(algorithm.get("adv_estimator", "")).startswith("grpo")
    if grouped and algorithm.get("norm_adv_by_std_in_grpo", True):
        warnings.warn(
            "verl divides rewards by their standard deviation in each group: where a "
            "group's rewards are equal, differences of its seconds then train as hard "
            "as a right answer against a wrong one. Set "
            "algorithm.norm_adv_by_std_in_grpo=False",
            UserWarning,
            stacklevel=2,
        )


class _Priced:
    """The naive manager with a function that charges; it decodes and calls."""

    _warned = False

    def __init__(
        self, config: Any, tokenizer: Any, compute_score: Any, **options: Any
    ) -> None:
        if not _Priced._warned:
            warn_of_scaling(config)
            _Priced._warned = True
        rates = functools.partial(shared_rates, **settings_of(config))
        compute_score = compute_score or _naive.default_compute_score
        priced = score_function(compute_score, rates=rates)
        super().__init__(config, tokenizer, priced, **options)  # type: ignore[call-arg]


RewardRateManager = type(
    "RewardRateManager", (_Priced, _naive.NaiveRewardManager), {"__module__": __name__}
)
_registry.register("rpg")(RewardRateManager)
