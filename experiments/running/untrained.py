"""Untrained scripts of a policy, run on small synthetic data: arm ``independent``.

Every attempt answers the base prompt: no parents, no gradient, no private test.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from experiments.config.errors import UsageError
from experiments.config.options import Options
from experiments.config.settings import Settings, longer, read_settings
from experiments.policies.models import describe
from experiments.running.launch import launch
from experiments.running.parts import open_experiment
from experiments.running.places import Places, check_folder
from experiments.running.resolve import resolve_settings

ARM = "independent"


def settings_for(options: Options, samples: int) -> Settings:
    """An experiment of so many untrained attempts a task, rounded up to whole steps.

    Args:
        options: tasks, model and limits; the rest is set here.
        samples: attempts a task.

    Raises:
        UsageError: a value is out of range, or names something that is not there.
    """
    if samples < 1:
        raise UsageError(f"--samples={samples}: must be at least 1")
    asked = dataclasses.replace(
        options, arms=(ARM,), seeds=("1",), data="synthetic", final="none", steps=1
    )
    settings = resolve_settings(asked, describe=describe)
    return _with_samples(settings, samples)


def resumed(folder: Path, options: Options, samples: int | None) -> Settings:
    """The settings of a stopped run; more samples are fine, fewer are not.

    Args:
        folder: of the run.
        options: of the command line; tasks that it names must be the run's.
        samples: attempts a task; None: as before.

    Raises:
        UsageError: there is no such run, or it is of another kind.
    """
    settings = read_settings(folder)
    if [arm.name for arm in settings.arms] != [ARM]:
        raise UsageError(f"{folder} is no run of this command: choose another --out")
    if options.task and tuple(options.task) not in (settings.tasks, ("all",)):
        raise UsageError(
            f"{folder} holds {', '.join(settings.tasks)}: leave out --task, or choose "
            "another --out"
        )
    if samples is None:
        return settings
    steps = _steps(settings, samples)
    old = settings.budget.steps or 0
    return longer(settings, None, max(steps, old))


def sample(settings: Settings, folder: Path, *, resume: bool, cache_dir: str | None
           ) -> int:  # fmt: skip
    """Run them; the exit code.

    Raises:
        UsageError: the folder or the machine is not what they need.
    """
    check_folder(folder, resume=resume)
    places = Places(out=folder, cache_dir=cache_dir)
    return launch(open_experiment(settings, places, resume=resume))


def _steps(settings: Settings, samples: int) -> int:
    return -(-samples // settings.protocol.chains)


def _with_samples(settings: Settings, samples: int) -> Settings:
    budget = dataclasses.replace(settings.budget, steps=_steps(settings, samples))
    return dataclasses.replace(settings, budget=budget)
