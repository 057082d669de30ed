"""From options to ``Settings``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from experiments.answers import get_form
from experiments.config import parse
from experiments.config.errors import UsageError
from experiments.config.options import FINALS, WHOLE_SCRIPT, Options
from experiments.config.plugins import load_plugins
from experiments.config.presets import Machine, Preset, preset_for
from experiments.config.protocol import Protocol
from experiments.config.settings import Settings
from experiments.config.virtual import Virtual, table_of
from experiments.menus import part_edits
from experiments.running.machine import slots_of
from rpg_tasks.registry import get_task


def resolve_settings(
    options: Options,
    *,
    data_dir: str | None = None,
    describe: Callable[[str], Any],
) -> Settings:
    """The settings that options mean; the cheap checks come first.

    Args:
        options: None takes the default of the protocol or of the policy's preset.
        data_dir: MLE-Bench's data folder.
        describe: name of a model -> its ``ModelInfo``.

    Raises:
        UsageError: a value is out of range, or names something that is not there.
    """
    load_plugins(options.plugins)
    options = parse.with_objective(options)
    tasks = parse.tasks_of(options.task or ())
    arms = parse.arms_of(options.arms, options.fixed_price)
    seeds = parse.seeds_of(options.seeds)
    _check_numbers(options)
    sources = parse.sources_of(tasks, options.data, data_dir)
    real = "mlebench" in sources
    preset = preset_for(options.model, describe)
    protocol = parse.protocol_of(options.protocol, preset, options)
    parse.check_group(protocol, arms)
    parse.check_reward(protocol, tasks)
    parse.check_objective(protocol, arms, tasks)
    style = options.prompt_style or preset.style
    machine = _machine(options, preset)
    slots = _slots(options, protocol, machine, tasks, real=real)
    return Settings(
        tasks=tasks,
        sources=sources,
        size=options.size,
        data_seed=options.seed,
        arms=arms,
        seeds=seeds,
        protocol=protocol,
        budget=parse.budget_of(
            options.budget, options.steps, options.budget_clock, preset
        ),
        final=options.final,
        model=options.model,
        preset=preset.name,
        style=style,
        stated_limits=preset.stated_limits,
        wall_limit_s=options.wall_limit or preset.wall_limit_s,
        machine=machine,
        slots=slots,
        isolation=parse.isolation_of(
            options.isolation, real=real, model=options.model, style=style
        ),
        answer_form=_form(options.answer_form, style),
        plugins=options.plugins,
        virtual=_virtual(options, slots),
    )


def _virtual(options: Options, slots: int) -> Virtual | None:
    table = table_of(options.executions)
    if table is None:
        return None
    try:
        return Virtual(
            table=table,
            sampling_s=options.declared_sampling,
            update_s=options.declared_update,
            slots=slots,
            runs=options.table_runs,
        )
    except ValueError as error:
        raise UsageError(f"--executions={options.executions}: {error}") from None


def _check_numbers(options: Options) -> None:
    for name in ("wall_limit", "budget", "lr"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{name}={value:g}: must be positive")
    rank = options.lora_rank
    if rank is not None and not 0 <= rank <= 4096:
        raise UsageError(f"--lora_rank={rank}: must be 0 to 4096")
    for name, least in (("microbatch", 1), ("group", 0)):
        value = getattr(options, name)
        if value is not None and not least <= value <= 4096:
            raise UsageError(f"--{name}={value}: must be {least} to 4096")
    if options.final not in FINALS:
        raise UsageError(f"--final: choose from {', '.join(FINALS)}")
    if not 0 <= options.seed < 2**31:
        raise UsageError(f"--seed={options.seed}: must be 0 to 2**31 - 1")


def _form(name: str | None, style: str) -> str:
    """The form of answers, by default the one that goes with the prompts' style."""
    menu = style == "menu"
    if name is None:
        return part_edits.NAME if menu else WHOLE_SCRIPT
    try:
        get_form(name)
    except ValueError as error:
        raise UsageError(f"--answer-form: {error}") from None
    if menu and name != part_edits.NAME:
        raise UsageError(
            f"--answer-form={name}: a policy that chooses from a menu answers with "
            f"{part_edits.NAME}"
        )
    if name == part_edits.NAME and not menu:
        raise UsageError(f"--answer-form={name} goes with --prompt-style=menu")
    return name


def _machine(options: Options, preset: Preset) -> Machine:
    asked: dict[str, Any] = {
        "lora_rank": options.lora_rank,
        "microbatch": options.microbatch,
        "group": options.group,
        "compute_dtype": options.dtype,
        "remat": options.remat,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return dataclasses.replace(preset.machine, **given)


def _slots(
    options: Options,
    protocol: Protocol,
    machine: Machine,
    tasks: tuple[str, ...],
    *,
    real: bool,
) -> int:
    return slots_of(
        options.slots,
        protocol.chains,
        # Answers in groups are sampled while scripts run.
        overlap=machine.group > 0,
        # Synthetic data are small; real data can fill what a script may take.
        script_mb=max(get_task(t).memory_mb for t in tasks) if real else None,
    )
