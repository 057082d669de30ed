"""What a run takes from its policy's size: prompts, chains, step sizes, limits.

A protocol fixes what is compared; a preset fixes what a policy can read and a machine
can hold. A flag overrides either.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

STATED = ("run", "task")
STYLES = ("full", "compact", "menu")


@dataclasses.dataclass(frozen=True)
class Machine:
    """How a policy is held and trained on this machine; a protocol has no opinion.

    Attributes:
        microbatch: rows per forward pass of the update.
        group: answers sampled at one time on an accelerator; 0: all of a step.
        lora_rank: 0 trains all weights.
        park: keep the training state of a run whose turn it is not in the host's
            memory (accelerators only).
        compute_dtype: of matrix products on an accelerator (float32 on a CPU).
        remat: recompute layers in the backward pass.
        checkpoint_every: steps between checkpoints; answers of the steps between are
            kept, so that a resumed run loses none of them.
        keep: checkpoints kept, at least 2: should the newest be damaged, the one before
            is loaded.
    """

    microbatch: int = 8
    group: int = 0
    lora_rank: int = 0
    park: bool = False
    compute_dtype: str = "float32"
    remat: bool = True
    checkpoint_every: int = 5
    keep: int = 2

    def __post_init__(self) -> None:
        if self.keep < 2:
            raise ValueError("keep must be at least 2: one to fall back to")


@dataclasses.dataclass(frozen=True)
class Preset:
    """Defaults of one class of policies; None leaves the protocol's or task's value.

    Attributes:
        name: of the preset.
        style: of the prompts: ``full`` and ``compact`` ask for a script, ``menu`` for
            choices from a menu.
        stated_limits: what prompts say about time and memory: the limits of this
            ``run``, or those in the ``task``'s record, which the embedded policy was
            taught with. A policy that has read one sentence only cannot use another.
        chains: slots.
        max_prompt_tokens: longest prompt.
        max_new_tokens: longest answer.
        temperature: of sampling.
        learning_rate: of the policy.
        epochs: passes over a batch.
        kl_coef: price of a nat of KL to the start policy; 0 saves its forward pass.
        wall_limit_s: wall limit of a script, seconds.
        budget_s: budget of a run, seconds.
        machine: see ``Machine``.
    """

    name: str
    style: str = "full"
    stated_limits: str = "run"
    chains: int | None = None
    max_prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    learning_rate: float | None = None
    epochs: int | None = None
    kl_coef: float | None = None
    wall_limit_s: float | None = None
    budget_s: float = 6 * 3600.0
    machine: Machine = Machine()

    def __post_init__(self) -> None:
        if self.stated_limits not in STATED:
            raise ValueError(f"stated limits must be one of {STATED}")
        if self.style not in STYLES:
            raise ValueError(f"style must be one of {STYLES}")


# Whole answers have up to 70 tokens, edits mostly 4 to 12; a prompt up to 140. One pass
# over fresh answers and no KL to the start policy keep an update short on two cores.
TINY = Preset(
    name="tiny",
    style="menu",
    chains=8,
    max_prompt_tokens=256,
    max_new_tokens=96,
    learning_rate=3e-4,
    epochs=1,
    kl_coef=0.0,
    wall_limit_s=60.0,
    budget_s=300.0,
    machine=Machine(remat=False),
)

SMALL = Preset(
    name="small",
    style="compact",
    chains=8,
    max_prompt_tokens=1536,
    max_new_tokens=512,
    learning_rate=1e-5,
    wall_limit_s=120.0,
    budget_s=1800.0,
    machine=Machine(compute_dtype="bfloat16"),
)

# SmolLM2-135M writes no script that runs, but it can choose. Up to a temperature of 2
# it repeats the choices that an improve prompt shows (measured: docs/models.md), and
# nothing new is tried. The longest answer of a menu has 140 tokens.
SMOLLM2 = Preset(
    name="smollm2",
    style="menu",
    chains=8,
    max_prompt_tokens=384,
    max_new_tokens=160,
    temperature=2.5,
    learning_rate=3e-4,
    wall_limit_s=60.0,
    budget_s=1800.0,
    machine=Machine(microbatch=4, lora_rank=8, remat=False),
)

# Answers in groups: scripts of one run while the next group is sampled. Sizes are those
# at which 4B parameters fit one H200 (docs/how-to/gpu.md); a row has 5,000 tokens, so
# that one alone keeps a GPU busy.
LARGE = Preset(
    name="large",
    machine=Machine(
        microbatch=1,
        group=16,
        park=True,
        compute_dtype="bfloat16",
        checkpoint_every=10,
    ),
)

# No model: its answers cost nothing.
RANDOM_EDITS = Preset(
    name="random-edits",
    style="menu",
    chains=8,
    wall_limit_s=60.0,
    budget_s=300.0,
)

PRESETS = {p.name: p for p in (TINY, SMOLLM2, SMALL, LARGE, RANDOM_EDITS)}

_NAMED = {"tiny": TINY, "smollm2": SMOLLM2, "random-edits": RANDOM_EDITS}
_TINY_BELOW, _SMALL_BELOW = 50_000_000, 1_000_000_000


def preset_for(model: str, describe: Callable[[str], Any]) -> Preset:
    """The preset of a named policy, else that of its number of parameters.

    Args:
        model: name or path.
        describe: model -> its ``ModelInfo``; not called for a name of ours.
    """
    if model in _NAMED:
        return _NAMED[model]
    parameters = describe(model).parameters
    if parameters < _TINY_BELOW:
        return TINY
    return SMALL if parameters < _SMALL_BELOW else LARGE
