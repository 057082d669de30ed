"""What identifies an experiment: options resolved into one frozen record."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from experiments.config import plain
from experiments.config.arms import Arm
from experiments.config.budget import Budget
from experiments.config.crossing import Crossing
from experiments.config.errors import UsageError
from experiments.config.options import WHOLE_SCRIPT
from experiments.config.presets import Machine
from experiments.config.protocol import Protocol
from experiments.config.virtual import Virtual
from rpg_tasks.registry import Task
from rpg_tasks.speedrun.record import Speedrun


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
        answer_form: how answers are written and read (``experiments.answers``).
        plugins: modules or files that register what the names above stand for.
        crossing: of a speedrun; None where the tasks are competitions.
        virtual: the clock, where executions come from a table; None: they are real.
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
    answer_form: str = plain.later(WHOLE_SCRIPT)
    plugins: tuple[str, ...] = plain.later(())
    virtual: Virtual | None = plain.later(None)  # noqa: RUF009
    crossing: Crossing | None = plain.later(None)  # noqa: RUF009

    @property
    def command(self) -> str:
        """The module that runs it."""
        name = "mle_bench" if self.crossing is None else "nanogpt"
        return f"experiments.{name}"

    @property
    def real(self) -> bool:
        """Whether any task has real data."""
        return "mlebench" in self.sources

    def limit_s(self, task: Task | Speedrun) -> float:
        """Wall limit of a script of a task, seconds."""
        return self.wall_limit_s or task.wall_limit_s


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


def same_limits(settings: Settings, stored: Settings) -> Settings:
    """With the stored run's seconds and steps, on the clock that was asked for."""
    budget = dataclasses.replace(
        settings.budget, seconds=stored.budget.seconds, steps=stored.budget.steps
    )
    return dataclasses.replace(settings, budget=budget)


def read_settings(folder: Path) -> Settings:
    """The settings of a run's folder.

    Raises:
        UsageError: there is no run, or its config.json is not one of this command.
    """
    path = folder / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["config"]
        settings: Settings = plain.from_plain(Settings, stored)
        return settings
    except FileNotFoundError:
        raise UsageError(f"there is no run in {folder} (no config.json)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not that of such an experiment ({error})"
        ) from None
