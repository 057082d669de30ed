"""Whether a run fits a GPU, how fast it can be at best, and what to change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from experiments.config.devices import Device
from experiments.config.presets import Machine
from experiments.config.settings import Settings
from experiments.policies.llm import LLMOptions, ppo_hyper
from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.memory import GIB, StepMemory, step_memory
from rpg_jax.llm.models import count_parameters

_LORA = 32


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one setting needs.

    Attributes:
        machine: the setting.
        memory: of one step.
        device: that it is for.
    """

    machine: Machine
    memory: StepMemory
    device: Device

    @property
    def fits(self) -> bool:
        """Whether every phase does."""
        return self.memory.peak <= self.device.gib * GIB


def plan_of(
    settings: Settings, config: ModelConfig, device: Device, machine: Machine
) -> Plan:
    """Compile one step for shapes alone and read XLA's analysis."""
    protocol = settings.protocol
    options = LLMOptions(
        microbatch=machine.microbatch,
        lora_rank=machine.lora_rank,
        compute_dtype=machine.compute_dtype,
        remat=machine.remat,
        donate=True,
    )
    memory = step_memory(
        config,
        ppo_hyper(protocol.learning, protocol.sampling, options),
        rows=protocol.chains,
        prompt=protocol.sampling.max_prompt_tokens,
        completion=protocol.sampling.max_new_tokens,
        group=machine.group,
    )
    return Plan(machine, memory, device)


def cheaper(machine: Machine) -> Iterator[tuple[str, Machine]]:
    """Settings that need less, the mildest first, with the flags that ask for them."""
    replace, flags = dataclasses.replace, ""
    if machine.compute_dtype != "bfloat16":
        machine = replace(machine, compute_dtype="bfloat16")
        flags += " --dtype=bfloat16"
        yield flags.strip(), machine
    if not machine.remat:
        machine = replace(machine, remat=True)
        flags += " --remat"
        yield flags.strip(), machine
    for rows in (4, 2, 1):
        if rows < machine.microbatch:
            smaller = replace(machine, microbatch=rows)
            yield f"{flags} --microbatch={rows}".strip(), smaller
    machine = replace(machine, microbatch=1, group=min(machine.group or 64, 16))
    flags += f" --microbatch=1 --group={machine.group}"
    yield flags.strip(), machine
    if not machine.lora_rank:
        flags += f" --lora_rank={_LORA}"
        yield flags.strip(), replace(machine, lora_rank=_LORA)


def first_that_fits(
    plan: Plan, make: Callable[[Machine], Plan], tell: Callable[[str], None]
) -> tuple[str, Plan] | None:
    """The mildest cheaper setting that fits, with its flags; None if none does."""
    for flags, machine in cheaper(plan.machine):
        tell(f"does {flags} fit?")
        found = make(machine)
        if found.fits:
            return flags, found
    return None


def bounds(settings: Settings, config: ModelConfig, device: Device) -> dict[str, Any]:
    """Speeds that the data sheet allows at most; real ones are lower.

    Decoding reads all weights once a token; training does 6 operations a parameter and
    token, and 2 more where layers are recomputed.
    """
    parameters = count_parameters(config)
    rows = settings.protocol.chains
    sampling = settings.protocol.sampling
    machine = settings.machine
    group = machine.group or rows
    decode = group * device.bandwidth / (2 * parameters)
    operations = (8 if machine.remat else 6) * parameters
    train = device.flops / operations
    tokens = rows * (sampling.max_prompt_tokens + sampling.max_new_tokens)
    seconds = {
        "sampling": rows * sampling.max_new_tokens / decode,
        "update": settings.protocol.learning.epochs * tokens / train,
    }
    return {"decode": decode, "train": train, "seconds": seconds}


def in_words(plan: Plan) -> list[str]:
    """The phases and their GiB, one line each."""
    memory = plan.memory
    lines = [f"{'always there':<14} {memory.resident / GIB:7.1f} GiB (training state)"]
    for name, peak in memory.peaks.items():
        over = " <- too much" if peak > plan.device.gib * GIB else ""
        lines.append(f"{name:<14} {peak / GIB:7.1f} GiB at its peak{over}")
    return lines
