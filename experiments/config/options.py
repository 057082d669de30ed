"""What a user may ask of an experiment, as one frozen record.

A command makes a flag of each field (``experiments.cli.define_flags``); a notebook
builds the record itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from experiments.config.budget import CLOCKS as BUDGET_CLOCKS
from experiments.config.errors import UsageError
from experiments.config.objective import BESTS, FORMS, RANKED_BY
from experiments.config.presets import STYLES
from experiments.config.protocol import (
    ADVANTAGES,
    PROTOCOLS,
    REPEATS,
    REWARD_SPLITS,
)
from experiments.config.rate import DATA
from experiments.config.reward_rule import (
    CLOCKS,
    FAILURE_CHARGES,
    REWARDS,
    SCRIPT_CLOCKS,
)
from experiments.config.virtual import REAL

#: Compared where nobody says which.
DEFAULT_ARMS = ("rpg", "vanilla")
MAX_AT_K = "max_at_k"
FINALS = ("best", "chains", "none")
WHOLE_SCRIPT = "whole-script"
ISOLATION = ("auto", "posix", "landlock", "namespaces", "full")


def option(
    default: Any, section: str, text: str, choices: Sequence[str] | None = None
) -> Any:
    """A field that a command can make a flag of.

    Args:
        default: None takes the default of the protocol or of the policy's preset.
        section: heading of --help that it stands under.
        text: its help.
        choices: values that are allowed; None allows any of the field's type.
    """
    about = {"section": section, "help": text, "choices": choices}
    return dataclasses.field(default=default, metadata=about)


_COMPARED = "what is compared"
_DATA = "data"
_REWARD = "reward and rate (by default the protocol's)"
_OBJECTIVE = "max@k reward, of arms max-at-k and rpg-best (by default the protocol's)"
_BUDGET = "budget"
_POLICY = "policy (by default the model's preset)"
_SANDBOX = "sandbox"
_RUN = "run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Everything that a command line can change about an experiment's numbers."""

    task: tuple[str, ...] | None = option(
        None, _COMPARED, "Task: short name, comma list, or all."
    )
    arms: tuple[str, ...] = option(
        DEFAULT_ARMS,
        _COMPARED,
        "Arms, see --list_arms; comma list or all.",
    )
    seeds: tuple[str, ...] = option(
        ("1",), _COMPARED, "Number of seeds, or a list (0,7)."
    )
    protocol: str = option(
        "sound", _COMPARED, "Ours, or the published one.", tuple(PROTOCOLS)
    )
    fixed_price: float | None = option(
        None, _COMPARED, "Of the arm fixed-price: reward per second."
    )
    plugins: tuple[str, ...] = option(
        (),
        _COMPARED,
        "Python modules or files that register arms, estimators, tasks or answer "
        "forms of your own (docs/extending.md).",
    )
    data: str | None = option(
        None,
        _DATA,
        "Where data come from; by default real data where they are prepared.",
        ("mlebench", "synthetic"),
    )
    size: str = option("small", _DATA, "Of synthetic data.", ("small", "medium"))
    seed: int = option(0, _DATA, "Of synthetic data and of the validation split.")
    reward: str | None = option(
        None,
        _REWARD,
        "Reward of a score; max_at_k: what an attempt adds to the best of those still "
        "to come, the objective of arms rpg-best and max-at-k, then the default ones.",
        (*REWARDS, MAX_AT_K),
    )
    reward_split: str | None = option(
        None, _REWARD, "Answers that make the reward.", REWARD_SPLITS
    )
    time: str | None = option(
        None,
        _REWARD,
        "Seconds a script pays for: with generation, or execution only.",
        CLOCKS,
    )
    clock: str | None = option(
        None,
        _REWARD,
        "Execution seconds are the script's wall time or its CPU time; generation is "
        "wall time under both.",
        SCRIPT_CLOCKS,
    )
    repeats: str | None = option(
        None,
        _REWARD,
        "A script that the run has seen before: reuse its first run's outcome, or run "
        "it again.",
        REPEATS,
    )
    failure_charge: str | None = option(
        None, _REWARD, "Seconds of a failure.", FAILURE_CHARGES
    )
    failure_penalty: float | None = option(
        None,
        _REWARD,
        "What a failure loses beside its time; the paper's reward has its own (10).",
    )
    rate: str | None = option(
        None,
        _REWARD,
        "Estimator of the reward rate: niw, robbins-monro, neural, empirical, or one "
        "of a plugin.",
    )
    rate_data: str | None = option(
        None,
        _REWARD,
        "Attempts that it sees: the best ones, or lifetime sums per chain.",
        DATA,
    )
    max_k: int | None = option(
        None,
        _OBJECTIVE,
        "k is the number of attempts that a chain has left, at most this (16).",
    )
    k_start: int | None = option(
        None,
        _OBJECTIVE,
        "k rises from here to max_k as the budget is used; by default it does not.",
    )
    k_batches: int | None = option(
        None,
        _OBJECTIVE,
        "Recent batches whose values stand for the policy's distribution (5).",
    )
    best: str | None = option(
        None,
        _OBJECTIVE,
        "What is to be beaten: nothing, or the best value of the chain so far.",
        BESTS,
    )
    k_form: str | None = option(
        None,
        _OBJECTIVE,
        "From values; from their ranks where the scale of scores means nothing; or "
        "from values under a smooth distribution: kernel, or with a Pareto tail.",
        FORMS,
    )
    rank_by: str | None = option(
        None,
        _OBJECTIVE,
        "Rank parents by the objective as well, or by their value.",
        RANKED_BY,
    )
    budget: float | None = option(None, _BUDGET, "Seconds of each run.")
    budget_clock: str = option("total", _BUDGET, "Which seconds.", BUDGET_CLOCKS)
    steps: int | None = option(None, _BUDGET, "Steps of each run, at most.")
    model: str = option(
        "tiny",
        _POLICY,
        "tiny, smollm2, a model folder, a .gguf file or a cached hub id; random-edits "
        "draws edits and has no model.",
    )
    chains: int | None = option(None, _POLICY, "Scripts per step.")
    lr: float | None = option(None, _POLICY, "Step size of the policy.")
    advantage: str | None = option(
        None,
        _POLICY,
        "Baseline of the advantage: the mean of the others, a regression on the "
        "parent's value and seconds, or a learned critic.",
        ADVANTAGES,
    )
    cap_gainless: bool | None = option(
        None,
        _POLICY,
        "A script that gains nothing never has a positive advantage, unless the whole "
        "batch gains nothing.",
    )
    lora_rank: int | None = option(
        None, _POLICY, "Train adapters of this rank; 0: all weights."
    )
    microbatch: int | None = option(
        None, _POLICY, "Rows per forward pass of the update."
    )
    group: int | None = option(
        None, _POLICY, "Answers sampled at one time on a GPU; 0: all of a step."
    )
    dtype: str | None = option(
        None, _POLICY, "Of matrix products on a GPU.", ("float32", "bfloat16")
    )
    remat: bool | None = option(
        None, _POLICY, "Recompute layers in the backward pass: slower, less memory."
    )
    prompt_style: str | None = option(
        None,
        _POLICY,
        "Ask a large or a small model for a script, or for choices from a menu.",
        STYLES,
    )
    answer_form: str | None = option(
        None,
        _POLICY,
        "How a script is improved: whole-script writes it again in full, "
        "search-replace and unified-diff edit the one shown; a policy that chooses "
        "from a menu names the parts that change (part-edits).",
    )
    max_prompt_tokens: int | None = option(None, _POLICY, "Longest prompt.")
    max_new_tokens: int | None = option(None, _POLICY, "Longest answer.")
    slots: int | None = option(
        None,
        _SANDBOX,
        "Scripts at one time, a core each; by default all (a large policy keeps one).",
    )
    wall_limit: float | None = option(None, _SANDBOX, "Seconds of a script, at most.")
    isolation: str = option(
        "auto",
        _SANDBOX,
        "Least level that the sandbox must give; the best one is used.",
        ISOLATION,
    )
    executions: str = option(
        REAL,
        _SANDBOX,
        "real, or table:DIR: a script is charged what it took and scored when it ran "
        "before; unknown ones run and are added. The clock is then virtual.",
    )
    declared_sampling: float = option(
        0.2, _SANDBOX, "With a table: seconds that the answers of a step take."
    )
    declared_update: float = option(
        0.9, _SANDBOX, "With a table: seconds of an update."
    )
    table_runs: int = option(
        2, _SANDBOX, "With a table: runs of a script whose mean it is charged."
    )
    final: str = option(
        "best",
        _RUN,
        "Scripts scored on the private test: the run's best, each chain's, none.",
        FINALS,
    )


def choices(name: str, values: Sequence[str], allowed: Sequence[str]) -> list[str]:
    """Check a comma-separated list against the allowed names; 'all' is all.

    Raises:
        UsageError: an entry is not allowed; the message lists what is.
    """
    if list(values) == ["all"]:
        return list(allowed)
    for value in values:
        if value not in allowed:
            raise UsageError(
                f"--{name}={value}: choose from {', '.join(allowed)} or all"
            )
    if not values:
        raise UsageError(f"--{name} is empty")
    return list(dict.fromkeys(values))
