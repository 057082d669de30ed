"""From flags to ``Settings``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from experiments.config import plain
from experiments.config import settings as rules
from experiments.config.errors import UsageError
from experiments.config.presets import preset_for
from experiments.config.settings import Settings
from experiments.running.machine import slots_of
from rpg_tasks.registry import get_task


def resolve_settings(
    options: Mapping[str, Any],
    *,
    data_dir: str | None = None,
    describe: Callable[[str], Any],
) -> Settings:
    """The settings that options mean; the cheap checks come first.

    Args:
        options: by the names of the flags; None takes the default of the protocol or
            of the policy's preset.
        data_dir: MLE-Bench's data folder.
        describe: name of a model -> its ``ModelInfo``.

    Raises:
        UsageError: a value is out of range, or names something that is not there.
    """
    tasks = rules.tasks_of(options["task"] or ())
    arms = rules.arms_of(options["arms"], options["fixed_price"])
    seeds = rules.seeds_of(options["seeds"])
    for name in ("wall_limit", "budget", "lr"):
        value = options[name]
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{name}={value:g}: must be positive")
    if options["lora_rank"] is not None and not 0 <= options["lora_rank"] <= 4096:
        raise UsageError(f"--lora_rank={options['lora_rank']}: must be 0 to 4096")
    if options["final"] not in rules.FINALS:
        raise UsageError(f"--final: choose from {', '.join(rules.FINALS)}")
    if options["seed"] >= 2**31:
        raise UsageError(f"--seed={options['seed']}: must be below 2**31")
    sources = rules.sources_of(tasks, options["data"], data_dir)
    real = "mlebench" in sources
    preset = preset_for(options["model"], describe)
    protocol = rules.protocol_of(options["protocol"], preset, options)
    rules.check_group(protocol, arms)
    rules.check_reward(protocol, tasks)
    machine, style = preset.machine, options["prompt_style"] or preset.style
    if options["lora_rank"] is not None:
        machine = dataclasses.replace(machine, lora_rank=options["lora_rank"])
    return Settings(
        tasks=tasks,
        sources=sources,
        size=options["size"],
        data_seed=options["seed"],
        arms=arms,
        seeds=seeds,
        protocol=protocol,
        budget=rules.budget_of(
            options["budget"], options["steps"], options["budget_clock"], preset
        ),
        final=options["final"],
        model=options["model"],
        preset=preset.name,
        style=style,
        stated_limits=preset.stated_limits,
        wall_limit_s=options["wall_limit"] or preset.wall_limit_s,
        machine=machine,
        slots=slots_of(
            options["slots"],
            protocol.chains,
            # Answers in groups are sampled while scripts run.
            overlap=machine.group > 0,
            # Synthetic data are small; real data can fill what a script may take.
            script_mb=max(get_task(t).memory_mb for t in tasks) if real else None,
        ),
        isolation=rules.isolation_of(
            options["isolation"], real=real, model=options["model"], style=style
        ),
    )


def show(settings: Settings, places: Any) -> str:
    """The resolved configuration as JSON."""
    shown = plain.to_plain(settings) | {"out": str(places.out)}
    return json.dumps(shown, indent=2, ensure_ascii=False)
