"""What identifies an experiment: flags resolved into one frozen record."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.cli import UsageError, choices
from experiments.config import plain
from experiments.config.arms import ARMS, Arm, get_arm
from experiments.config.presets import Machine, Preset
from experiments.config.protocol import PROTOCOLS, Protocol, get_protocol
from experiments.loop.turns import CLOCKS, Budget
from rpg_tasks.mlebench import choose_source
from rpg_tasks.registry import Task, TaskError, get_task, load_tasks
from rpg_tasks.rewards import PAPER_FAILURE

FINALS = ("best", "chains", "none")
ISOLATION = ("auto", "posix", "landlock", "namespaces", "full")


@dataclasses.dataclass(frozen=True)
class Settings:
    """An experiment; everything that can change a number is here.

    Attributes:
        tasks: short names.
        sources: of each task's data, ``synthetic`` or ``mlebench``.
        size: of synthetic data.
        data_seed: of synthetic data and of the validation split.
        arms: see ``Arm``.
        seeds: of the runs.
        protocol: resolved; all arms share it.
        budget: of each run.
        final: which scripts the private test scores.
        model: name or path of the policy.
        preset: name of the preset that gave the defaults.
        style: of the prompts.
        stated_limits: see ``Preset``.
        wall_limit_s: of a script, seconds; None: the task's.
        machine: see ``Machine``.
        slots: scripts at one time, one core each.
        isolation: least level that the sandbox must give.
    """

    tasks: tuple[str, ...]
    sources: tuple[str, ...]
    size: str
    data_seed: int
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    protocol: Protocol
    budget: Budget
    final: str
    model: str
    preset: str
    style: str
    stated_limits: str
    wall_limit_s: float | None
    machine: Machine
    slots: int
    isolation: str

    @property
    def real(self) -> bool:
        """Whether any task has real data."""
        return "mlebench" in self.sources

    def limit_s(self, task: Task) -> float:
        """Wall limit of a script of a task, seconds."""
        return self.wall_limit_s or task.wall_limit_s


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


def arms_of(names: Sequence[str], fixed_price: float | None) -> tuple[Arm, ...]:
    """The arms that ``--arms`` lists.

    Raises:
        UsageError: there is no such arm, or the fixed price is missing or in vain.
    """
    chosen = [n for n in ARMS if n != "fixed-price" or fixed_price is not None]
    if list(names) != ["all"]:
        chosen = choices("arms", names, list(ARMS))
    if fixed_price is not None and "fixed-price" not in chosen:
        raise UsageError("--fixed-price is for --arms=fixed-price: add that arm")
    if fixed_price is None and "fixed-price" in chosen:
        raise UsageError(
            "--arms=fixed-price needs --fixed-price=REWARD_PER_SECOND, for example 0.01"
        )
    try:
        return tuple(
            get_arm(n, fixed_price=fixed_price if n == "fixed-price" else None)
            for n in chosen
        )
    except ValueError as error:
        raise UsageError(f"--fixed-price: {error}") from None


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
        if not 1 <= numbers[0] <= 1000:
            raise UsageError(f"--seeds={numbers[0]}: between 1 and 1000 seeds")
        return tuple(range(numbers[0]))
    return tuple(dict.fromkeys(numbers))


def sources_of(
    tasks: Sequence[str], data: str | None, data_dir: str | None
) -> tuple[str, ...]:
    """Where each task's data come from; real data must be there and whole.

    Raises:
        UsageError: they are not; names the first task.
    """
    from rpg_tasks.mlebench import find_prepared

    try:
        found = tuple(choose_source(task, data, data_dir) for task in tasks)
        for task, source in zip(tasks, found, strict=True):
            if source == "mlebench":
                find_prepared(task, data_dir)
    except TaskError as error:
        raise UsageError(str(error)) from error
    return found


def protocol_of(name: str, preset: Preset, options: Mapping[str, Any]) -> Protocol:
    """A protocol with the preset's and then the user's changes.

    Args:
        name: of the protocol.
        preset: of the policy.
        options: flags by name; None keeps the default.

    Raises:
        UsageError: a value is not allowed.
    """
    if name not in PROTOCOLS:
        raise UsageError(f"--protocol={name}: choose from {', '.join(PROTOCOLS)}")
    base = get_protocol(name)

    def given(**fields: Any) -> dict[str, Any]:
        return {key: value for key, value in fields.items() if value is not None}

    def first(flag: str, default: Any) -> Any:
        return options[flag] if options.get(flag) is not None else default

    for flag in ("chains", "max_prompt_tokens", "max_new_tokens"):
        value = options.get(flag)
        if value is not None and not 1 <= value <= 1_000_000:
            raise UsageError(f"--{flag}={value}: must be 1 to 1000000")
    kind = options.get("reward") or base.rule.kind
    if kind == "paper" and options.get("failure_penalty") is not None:
        raise UsageError(
            f"--failure_penalty: a failure's reward is {PAPER_FAILURE:g} under the "
            "paper's rule; leave it out, or choose --reward=gain"
        )
    try:
        rule = dataclasses.replace(
            base.rule,
            **given(
                kind=options.get("reward"),
                clock=options.get("time"),
                failure_charge=options.get("failure_charge"),
                failure_penalty=options.get("failure_penalty"),
            ),
        )
        rate = dataclasses.replace(
            base.rate,
            **given(estimator=options.get("rate"), data=options.get("rate_data")),
        )
        sampling = dataclasses.replace(
            base.sampling,
            **given(
                max_prompt_tokens=first("max_prompt_tokens", preset.max_prompt_tokens),
                max_new_tokens=first("max_new_tokens", preset.max_new_tokens),
                temperature=preset.temperature,
            ),
        )
        learning = dataclasses.replace(
            base.learning,
            **given(
                advantage=options.get("advantage"),
                learning_rate=first("lr", preset.learning_rate),
                epochs=preset.epochs,
                kl_coef=preset.kl_coef,
            ),
        )
        resolved = dataclasses.replace(
            base,
            rule=rule,
            rate=rate,
            sampling=sampling,
            learning=learning,
            **given(
                chains=first("chains", preset.chains),
                reward_split=options.get("reward_split"),
            ),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if rate.data == "slots" and rate.estimator == "niw" and resolved.chains < 2:
        raise UsageError("--rate-data=slots needs --chains=2 or more")
    return resolved


def check_group(protocol: Protocol, arms: Sequence[Arm]) -> None:
    """Refuse a group of one, whose only advantage over the others is 0.

    Raises:
        UsageError: an arm would learn nothing.
    """
    learns = any(arm.gradient for arm in arms)
    if learns and protocol.chains < 2 and protocol.learning.advantage == "loo":
        raise UsageError(
            "--chains=1 leaves nothing to compare an attempt with, so that nothing "
            "would be learned: take 2 or more, --advantage=critic or "
            "--arms=search-only"
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


def longer(settings: Settings, seconds: float | None, steps: int | None) -> Settings:
    """The same experiment with a larger budget; None leaves a limit as it is.

    Raises:
        UsageError: it would be smaller.
    """
    try:
        budget = settings.budget.extended(seconds, steps)
    except ValueError as error:
        raise UsageError(f"--resume: {error}") from None
    return dataclasses.replace(settings, budget=budget)


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


def same_limits(settings: Settings, stored: Settings) -> Settings:
    """With the stored run's seconds and steps, on the clock that was asked for."""
    limits = {"seconds": stored.budget.seconds, "steps": stored.budget.steps}
    budget = dataclasses.replace(settings.budget, **limits)
    return dataclasses.replace(settings, budget=budget)


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


def read_settings(folder: Path) -> Settings:
    """The settings of a run's folder.

    Raises:
        UsageError: there is no run, or its config.json is not one of this command.
    """
    import json

    path = folder / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["config"]
        return plain.from_plain(Settings, stored)
    except FileNotFoundError:
        raise UsageError(f"there is no run in {folder} (no config.json)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not that of an MLE-Bench experiment ({error})"
        ) from None
