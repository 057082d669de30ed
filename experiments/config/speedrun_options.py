"""What a user may ask of a speedrun: a part of ``Options``, and what is its own."""

from __future__ import annotations

import dataclasses

from experiments.config.options import ISOLATION, Options, option
from experiments.config.protocol import ADVANTAGES, PROTOCOLS, REPEATS
from experiments.config.reward_rule import SCRIPT_CLOCKS
from rpg_tasks.speedrun.record import CONTRACTS

EMBEDDED = "embedded"
FINALS = ("best", "none")

_COMPARED = "what is compared"
_TARGET = "target and verification (by default the speedrun's)"
_REWARD = "reward and rate"
_BUDGET = "budget"
_POLICY = "policy"
_SANDBOX = "sandbox"
_RUN = "run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedrunOptions:
    """Everything that the command line can change about a speedrun's numbers."""

    speedrun: str = option("tiny-gpt", _COMPARED, "Which one.")
    arms: tuple[str, ...] = option(
        ("rpg", "vanilla"), _COMPARED, "Arms; comma list (rpg-best, vanilla-time, ...)."
    )
    seeds: tuple[str, ...] = option(
        ("1",), _COMPARED, "Number of seeds, or a list (0,7)."
    )
    protocol: str = option(
        "sound", _COMPARED, "Ours, or the published rewards.", tuple(PROTOCOLS)
    )
    fixed_price: float | None = option(
        None, _COMPARED, "Of the arm fixed-price: reward per second."
    )
    plugins: tuple[str, ...] = option(
        (), _COMPARED, "Python modules or files that register arms or estimators."
    )
    target: float | None = option(None, _TARGET, "Loss to reach, nats a token.")
    sigma: float | None = option(
        None, _TARGET, "Width of the soft crossing, nats; 0: a hard one."
    )
    contract: str = option(
        "declared",
        _TARGET,
        "The harness computes the loss from declared weights, or calls the script's "
        "load and logits (any architecture, n-gram tables too).",
        CONTRACTS,
    )
    clock: str = option(
        "cpu", _REWARD, "A script pays for CPU or for wall seconds.", SCRIPT_CLOCKS
    )
    repeats: str = option(
        "run",
        _REWARD,
        "A script that the run has seen before: run it again with another training "
        "seed, or reuse its first run's outcome.",
        REPEATS,
    )
    rate: str | None = option(None, _REWARD, "Estimator of the reward rate.")
    max_k: int | None = option(None, _REWARD, "Of max@k: largest k (16).")
    budget: float | None = option(None, _BUDGET, "Seconds of each run.")
    steps: int | None = option(
        None, _BUDGET, "Steps of each run, at most; 5 where no budget is given."
    )
    model: str = option(
        "random-edits",
        _POLICY,
        "random-edits draws edits of the recipe and has no model; embedded is the "
        "small policy of the package; or a model folder, .gguf file or hub id.",
    )
    chains: int | None = option(None, _POLICY, "Scripts per step (8).")
    lr: float | None = option(None, _POLICY, "Step size of the policy.")
    advantage: str | None = option(
        None, _POLICY, "Baseline of the advantage.", ADVANTAGES
    )
    lora_rank: int | None = option(None, _POLICY, "Train adapters of this rank.")
    answer_form: str | None = option(
        None,
        _POLICY,
        "How a model that writes code edits the script: search-replace (default), "
        "unified-diff, whole-script.",
    )
    max_prompt_tokens: int | None = option(None, _POLICY, "Longest prompt.")
    max_new_tokens: int | None = option(None, _POLICY, "Longest answer.")
    slots: int | None = option(
        None, _SANDBOX, "Scripts at one time, a core and a thread each."
    )
    wall_limit: float | None = option(None, _SANDBOX, "Seconds of a script, at most.")
    isolation: str = option(
        "auto", _SANDBOX, "Least level that the sandbox must give.", ISOLATION
    )
    final: str = option(
        "best",
        _RUN,
        "At the end train each run's best script with 3 fresh seeds and score it on "
        "another text too.",
        FINALS,
    )

    def common(self) -> Options:
        """The options that competitions have too; ``embedded`` is ``tiny`` there."""
        names = {field.name for field in dataclasses.fields(Options)}
        own = {field.name for field in dataclasses.fields(self)}
        shared = {name: getattr(self, name) for name in names & own}
        if self.model == EMBEDDED:
            shared["model"] = "tiny"
        return Options(**shared)
