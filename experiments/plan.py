"""Plan: does this model train on that GPU, and how fast at best?

    python -m experiments.plan --model=random:Qwen3.5-4B --devices=1xH200
    python -m experiments.plan --model=DIR --devices=L40S --lora_rank=32

Compiles the real step for shapes alone and reads XLA's memory analysis: no weights are
read and no GPU is needed. The analysis is the CPU compiler's; a GPU's differs where it
fuses otherwise. Exit code 1 if the run does not fit. Guide: docs/how-to/gpu.md
"""

from __future__ import annotations

import dataclasses
import functools
import sys

from absl import flags

from experiments import cli
from experiments.config.devices import DEVICES, device_of
from experiments.config.errors import UsageError
from experiments.config.options import Options

SECTIONS = cli.define_flags(Options)
TARGET = flags.DEFINE_string(
    "devices", "1xH200", f"The GPU: one of {', '.join(DEVICES)}."
)
SECTIONS = {"plan": [TARGET], **SECTIONS}


def main() -> int:
    """Print the plan; 0 if the run fits."""
    from experiments.policies.models import config_of, describe
    from experiments.running.plan import bounds, first_that_fits, in_words, plan_of
    from experiments.running.resolve import resolve_settings

    device = device_of(TARGET.value)
    options = cli.read_flags(Options)
    if not flags.FLAGS["model"].present:
        raise UsageError("--model: give random:Qwen3.5-4B, say, or a model folder")
    if options.task is None:
        options = dataclasses.replace(options, task=("spooky-author",))
    settings = resolve_settings(options, describe=describe)
    config = config_of(options.model)
    tell = functools.partial(print, file=sys.stderr, flush=True)
    make = functools.partial(plan_of, settings, config, device)
    tell("compiling one step for its shapes; a minute or more for billions of weights")
    plan = make(settings.machine)
    protocol = settings.protocol
    verdict = "fits" if plan.fits else "does NOT fit"
    print(
        f"{options.model} {verdict} one {device.name} ({device.gib:.0f} GiB): "
        f"{plan.memory.peak / 2**30:.1f} GiB at the largest moment"
    )
    print(
        f"a step: {protocol.chains} answers of {protocol.sampling.max_new_tokens} "
        f"tokens to prompts of {protocol.sampling.max_prompt_tokens}; microbatch "
        f"{settings.machine.microbatch}, group {settings.machine.group or 'all'}, "
        f"LoRA rank {settings.machine.lora_rank or 'none'}"
    )
    print("\n".join(in_words(plan)))
    speed = bounds(settings, config, device)
    seconds = speed["seconds"]
    print(
        f"at best       {speed['decode']:,.0f} tokens/s sampled, {speed['train']:,.0f} "
        f"trained (data sheet; expect about half): {seconds['sampling']:.0f} s + "
        f"{seconds['update']:.0f} s a step, scripts not counted"
    )
    if plan.fits:
        return 0
    found = first_that_fits(plan, make, tell)
    if found is None:
        print("nothing tried fits: take a larger GPU or a smaller model")
    else:
        flags_, better = found
        print(f"try           {flags_}: {better.memory.peak / 2**30:.1f} GiB")
    return 1


if __name__ == "__main__":
    cli.run(main, sections=SECTIONS)
