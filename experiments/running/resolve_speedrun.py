"""From a speedrun's options to ``Settings``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from experiments.config import parse
from experiments.config.budget import Budget
from experiments.config.crossing import PAPER_CAP_S, VANILLA_TIME, Crossing
from experiments.config.errors import UsageError
from experiments.config.plugins import load_plugins
from experiments.config.presets import Preset, preset_for
from experiments.config.protocol import Protocol
from experiments.config.settings import Settings
from experiments.config.speedrun_options import SpeedrunOptions
from experiments.console.screen import SPEEDRUN
from experiments.menus import part_edits
from experiments.running.machine import slots_of
from rpg_tasks.speedrun.record import Speedrun, get_speedrun
from rpg_tasks.task import TaskError

_CODE_FORMS = ("search-replace", "unified-diff", "whole-script")
_STEPS = 5
_CAP = 3.0  # times the baseline's seconds


def resolve_speedrun(
    options: SpeedrunOptions, *, describe: Callable[[str], Any]
) -> Settings:
    """The settings that options mean.

    Args:
        options: None takes the default of the speedrun, the protocol or the preset.
        describe: name of a model -> its ``ModelInfo``.

    Raises:
        UsageError: a value is out of range, or names something that is not there.
    """
    load_plugins(options.plugins)
    try:
        speedrun = get_speedrun(options.speedrun)
    except TaskError as error:
        raise UsageError(f"--speedrun: {error}") from None
    common = options.common()
    arms = parse.arms_of(options.arms, options.fixed_price, (VANILLA_TIME,))
    preset = preset_for(common.model, describe)
    style = preset.style
    protocol = _protocol(options, preset)
    machine = preset.machine
    if options.lora_rank is not None:
        machine = dataclasses.replace(machine, lora_rank=options.lora_rank)
    return Settings(
        tasks=(speedrun.short,),
        sources=(SPEEDRUN,),
        size="",
        data_seed=0,
        arms=arms,
        seeds=parse.seeds_of(options.seeds),
        protocol=protocol,
        budget=_budget(options),
        final=options.final,
        model=common.model,
        preset=preset.name,
        style=style,
        stated_limits="run",
        wall_limit_s=options.wall_limit,
        machine=machine,
        slots=slots_of(options.slots, protocol.chains, overlap=machine.group > 0),
        isolation=parse.isolation_of(
            options.isolation, real=False, model=common.model, style=style
        ),
        answer_form=_form(options.answer_form, style),
        plugins=options.plugins,
        crossing=_crossing(options, speedrun),
    )


def _crossing(options: SpeedrunOptions, speedrun: Speedrun) -> Crossing:
    target = speedrun.target if options.target is None else options.target
    sigma = speedrun.sigma if options.sigma is None else options.sigma
    paper = options.protocol == "paper"
    cap = PAPER_CAP_S if paper else _CAP * speedrun.baseline_s
    try:
        return Crossing(
            target=target, sigma=sigma, cap_s=cap, contract=options.contract
        )
    except ValueError as error:
        raise UsageError(f"--target, --sigma: {error}") from None


def _protocol(options: SpeedrunOptions, preset: Preset) -> Protocol:
    """The protocol with a speedrun's reward; a miss is charged like a failure."""
    protocol = parse.protocol_of(options.protocol, preset, options.common())
    paper = options.protocol == "paper"
    rule = dataclasses.replace(
        protocol.rule, kind="paper-crossing" if paper else "crossing"
    )
    return dataclasses.replace(protocol, rule=rule)


def _budget(options: SpeedrunOptions) -> Budget:
    seconds = options.budget
    if seconds is not None and not 0 < seconds < math.inf:
        raise UsageError(f"--budget={seconds:g}: must be positive")
    try:
        steps = options.steps
        if seconds is None and steps is None:
            steps = _STEPS
        return Budget(seconds=seconds, steps=steps)
    except ValueError as error:
        raise UsageError(f"--steps, --budget: {error}") from None


def _form(name: str | None, style: str) -> str:
    if style == "menu":
        if name not in (None, part_edits.NAME):
            raise UsageError(
                f"--answer-form={name}: a policy that chooses from a menu answers with "
                f"{part_edits.NAME}"
            )
        return part_edits.NAME
    if name is not None and name not in _CODE_FORMS:
        raise UsageError(f"--answer-form: choose from {', '.join(_CODE_FORMS)}")
    return name or _CODE_FORMS[0]
