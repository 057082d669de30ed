"""Options of an experiment, parsed and checked one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from experiments.config.arms import ARMS, SYSTEMATIC, Arm, get_arm
from experiments.config.budget import CLOCKS, Budget
from experiments.config.errors import UsageError
from experiments.config.options import (
    DEFAULT_ARMS,
    ISOLATION,
    MAX_AT_K,
    Options,
    choices,
)
from experiments.config.presets import Preset
from experiments.config.protocol import PROTOCOLS, Protocol, get_protocol
from experiments.config.rate import check_estimator
from experiments.config.reward_rule import PAPER_FAILURE
from rpg_tasks.mlebench import choose_source, find_prepared
from rpg_tasks.registry import TaskError, get_task, load_tasks


def tasks_of(names: Sequence[str]) -> tuple[str, ...]:
    """Short names of the tasks that ``--task`` lists; 'all' is all.

    Raises:
        UsageError: there is no such task, or none is named.
    """
    if [name.strip() for name in names] == ["all"]:
        return tuple(load_tasks())
    try:
        found = [get_task(name).short for name in names if name.strip()]
    except TaskError as error:
        raise UsageError(str(error)) from error
    if not found:
        raise UsageError("--task names no task (--list shows the names)")
    return tuple(dict.fromkeys(found))


def arms_of(
    names: Sequence[str], fixed_price: float | None, more: Sequence[Arm] = ()
) -> tuple[Arm, ...]:
    """The arms that ``--arms`` lists.

    Args:
        names: as given; ``all`` is all but those of ``more``.
        fixed_price: reward per second, of the arm of that name.
        more: arms of this command alone.

    Raises:
        UsageError: there is no such arm, or the fixed price is missing or not needed.
    """
    own = {arm.name: arm for arm in more}
    chosen = [n for n in ARMS if n != "fixed-price" or fixed_price is not None]
    if list(names) != ["all"]:
        chosen = choices("arms", names, [*ARMS, *SYSTEMATIC, *own])
    if fixed_price is not None and "fixed-price" not in chosen:
        raise UsageError("--fixed-price is for --arms=fixed-price: add that arm")
    if fixed_price is None and "fixed-price" in chosen:
        raise UsageError(
            "--arms=fixed-price needs --fixed-price=REWARD_PER_SECOND, for example 0.01"
        )
    try:
        return tuple(
            own.get(n)
            or get_arm(n, fixed_price=fixed_price if n == "fixed-price" else None)
            for n in chosen
        )
    except ValueError as error:
        raise UsageError(f"--fixed-price: {error}") from None


_MOST_SEEDS = 100  # of a plain number: more is a mistake, and a list takes any


def seeds_of(values: Sequence[str]) -> tuple[int, ...]:
    """``3`` is the three seeds 0, 1, 2; ``0,7`` and ``7,`` are lists.

    Raises:
        UsageError: not whole numbers, or none.
    """
    try:
        numbers = [int(value) for value in values if value.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or max(numbers) >= 2**31:
        raise UsageError(
            f"--seeds={','.join(values)}: give a number of seeds (3) or a list of them "
            "(0,7)"
        )
    if len(values) == 1:
        if not 1 <= numbers[0] <= _MOST_SEEDS:
            raise UsageError(
                f"--seeds={numbers[0]} is a number of seeds, 1 to {_MOST_SEEDS}; for "
                f"the one seed {numbers[0]} write --seeds={numbers[0]},"
            )
        return tuple(range(numbers[0]))
    return tuple(dict.fromkeys(numbers))


def sources_of(
    tasks: Sequence[str], data: str | None, data_dir: str | None
) -> tuple[str, ...]:
    """Where each task's data come from; real data must be there and whole.

    Raises:
        UsageError: they are not; names the first task.
    """
    try:
        found = tuple(choose_source(task, data, data_dir) for task in tasks)
        for task, source in zip(tasks, found, strict=True):
            if source == "mlebench":
                find_prepared(task, data_dir)
    except TaskError as error:
        raise UsageError(str(error)) from error
    return found


def with_objective(options: Options) -> Options:
    """Options without ``--reward=max_at_k``, which is an objective of arms.

    Raises:
        UsageError: an arm would learn from the reward itself all the same.
    """
    if options.reward != MAX_AT_K:
        return options
    names = options.arms
    if names == DEFAULT_ARMS:
        names = ("rpg-best", "max-at-k")
    else:
        others = [
            arm.name
            for arm in arms_of(names, options.fixed_price)
            if arm.gradient and arm.objective != "max-at-k"
        ]
        if others:
            raise UsageError(
                f"--reward=max_at_k: {', '.join(others)} learns from the reward "
                "itself; choose arms of that objective (rpg-best, max-at-k, "
                "max-at-k+own-advantage ...: --list_arms), or leave --reward out to "
                "compare both"
            )
    return dataclasses.replace(options, arms=tuple(names), reward=None)


# Which field of a protocol an option changes: (part, field), or one of its own.
_PLACES = {
    "reward": ("rule", "kind"),
    "time": ("rule", "clock"),
    "clock": ("rule", "script_clock"),
    "failure_charge": ("rule", "failure_charge"),
    "failure_penalty": ("rule", "failure_penalty"),
    "rate": ("rate", "estimator"),
    "rate_data": ("rate", "data"),
    "max_prompt_tokens": ("sampling", "max_prompt_tokens"),
    "max_new_tokens": ("sampling", "max_new_tokens"),
    "temperature": ("sampling", "temperature"),
    "advantage": ("learning", "advantage"),
    "lr": ("learning", "learning_rate"),
    "cap_gainless": ("learning", "cap_gainless"),
    "epochs": ("learning", "epochs"),
    "kl_coef": ("learning", "kl_coef"),
    "max_k": ("max_at_k", "max_k"),
    "k_start": ("max_at_k", "k_start"),
    "best": ("max_at_k", "best"),
    "k_form": ("max_at_k", "form"),
    "k_batches": ("max_at_k", "batches"),
    "rank_by": ("max_at_k", "rank_by"),
    "chains": (None, "chains"),
    "reward_split": (None, "reward_split"),
    "repeats": (None, "repeats"),
}


def protocol_of(name: str, preset: Preset, options: Options) -> Protocol:
    """A protocol with the preset's and then the user's changes.

    Args:
        name: of the protocol.
        preset: of the policy.
        options: None keeps the default.

    Raises:
        UsageError: a value is not allowed.
    """
    if name not in PROTOCOLS:
        raise UsageError(f"--protocol={name}: choose from {', '.join(PROTOCOLS)}")
    base = get_protocol(name)
    for flag in ("chains", "max_prompt_tokens", "max_new_tokens"):
        value = getattr(options, flag)
        if value is not None and not 1 <= value <= 1_000_000:
            raise UsageError(f"--{flag}={value}: must be 1 to 1000000")
    kind = options.reward or base.rule.kind
    if kind == "paper" and options.failure_penalty is not None:
        raise UsageError(
            f"--failure_penalty: a failure's reward is {PAPER_FAILURE:g} under the "
            "paper's rule; leave it out, or choose --reward=gain"
        )
    changes: dict[str | None, dict[str, Any]] = {}
    for option, (part, field) in _PLACES.items():
        value = getattr(options, option, None)
        if value is None:
            value = getattr(preset, {"lr": "learning_rate"}.get(option, option), None)
        if value is not None:
            changes.setdefault(part, {})[field] = value
    own = changes.pop(None, {})
    try:
        parts = {
            part: dataclasses.replace(getattr(base, part), **fields)
            for part, fields in changes.items()
            if part is not None
        }
        resolved = dataclasses.replace(base, **parts, **own)
    except ValueError as error:
        raise UsageError(str(error)) from None
    resolved = _without_a_cap(resolved, options)
    rate = resolved.rate
    try:
        check_estimator(rate.estimator)
    except ValueError as error:
        raise UsageError(f"--rate: {error}") from None
    if rate.data == "slots" and rate.estimator == "niw" and resolved.chains < 2:
        raise UsageError("--rate-data=slots needs --chains=2 or more")
    return resolved


def _without_a_cap(protocol: Protocol, options: Options) -> Protocol:
    """With ``cap_gainless`` off where only the trainer knows the advantages.

    Raises:
        UsageError: it was asked for.
    """
    learning = protocol.learning
    if not learning.cap_gainless or learning.plain_advantage:
        return protocol
    if options.cap_gainless:
        raise UsageError(
            "--cap_gainless acts on advantages that follow from the rewards: leave out "
            "--advantage=critic, or choose --protocol=sound"
        )
    learning = dataclasses.replace(learning, cap_gainless=False)
    return dataclasses.replace(protocol, learning=learning)


def check_group(protocol: Protocol, arms: Sequence[Arm]) -> None:
    """Refuse a group of one, whose only advantage over the others is 0.

    Raises:
        UsageError: an arm would learn nothing.
    """
    learns = any(arm.gradient for arm in arms)
    if learns and protocol.chains < 2 and protocol.learning.advantage != "critic":
        raise UsageError(
            "--chains=1 leaves nothing to compare an attempt with, so that nothing "
            "would be learned: take 2 or more, --advantage=critic or "
            "--arms=search-only"
        )


def check_reward(protocol: Protocol, tasks: Sequence[str]) -> None:
    """Refuse a reward under which every crash would be worth more than any script.

    Raises:
        UsageError: losses as rewards, and failures that lose nothing.
    """
    rule = protocol.rule
    if rule.kind != "raw" or rule.failure_penalty > 0:
        return
    losses = [name for name in tasks if not get_task(name).higher_is_better]
    if losses:
        raise UsageError(
            f"--reward=raw: on {', '.join(losses)} the metric is a loss, so every "
            "reward is below 0, a failure's is 0, and a policy would learn to fail; "
            "use --reward=gain, or give --failure_penalty above the worst loss"
        )


def check_objective(
    protocol: Protocol, arms: Sequence[Arm], tasks: Sequence[str]
) -> None:
    """Refuse values below 0 for max-at-k, which takes 0 for a failure's.

    Raises:
        UsageError: raw losses as rewards.
    """
    named = [arm.name for arm in arms if arm.objective == "max-at-k"]
    if protocol.rule.kind != "raw" or not named:
        return
    losses = [name for name in tasks if not get_task(name).higher_is_better]
    if losses:
        raise UsageError(
            f"--arms={','.join(named)}: with --reward=raw scripts of "
            f"{', '.join(losses)} are worth less than a failure, so nothing would be "
            "gained over the best so far; use --reward=gain"
        )


def budget_of(
    seconds: float | None, steps: int | None, clock: str, preset: Preset
) -> Budget:
    """The budget; --steps alone leaves the seconds open.

    Raises:
        UsageError: not positive.
    """
    if seconds is None and steps is None:
        seconds = preset.budget_s
    if clock not in CLOCKS:
        raise UsageError(f"--budget-clock={clock}: choose from {', '.join(CLOCKS)}")
    if steps is not None and steps < 1:
        raise UsageError(f"--steps={steps}: must be at least 1")
    return Budget(seconds=seconds, steps=steps, clock=clock)


def isolation_of(name: str, *, real: bool, model: str, style: str = "full") -> str:
    """The least level that the sandbox must give.

    The embedded policy can write what it was taught alone, and a choice from a menu is
    one of our scripts, so that on synthetic data LANDLOCK is good enough and the first
    lines say so. All else needs NAMESPACES. Less than that is never chosen here: it has
    to be asked for by name.

    Raises:
        UsageError: no such level, or too low for real data.
    """
    if name not in ISOLATION:
        raise UsageError(f"--isolation={name}: choose from {', '.join(ISOLATION)}")
    if name == "auto":
        tame = model == "tiny" or style == "menu"
        return "landlock" if tame and not real else "namespaces"
    if real and name in ("posix", "landlock"):
        raise UsageError(
            f"--isolation={name}: real data need namespaces or full, since scripts "
            "must not reach the private answers"
        )
    return name
