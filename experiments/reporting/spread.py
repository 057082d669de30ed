"""Whether to price time: seconds that buy no score, from records.

W of a task under a policy (``rpg_jax.score_free_spread``), and the seconds wasted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from experiments.reporting.runs import Bools, Experiment, Floats, RunRecords
from experiments.reporting.sheet import BLANK, number
from rpg_jax.spread import Spread, score_free_spread, wasted_share
from rpg_tasks.goal import Goal

#: Where a price of the score itself turned from a loss to a win, in a simulation.
PAYS = 5.0
#: Whose attempts come nearest to independent draws of the untrained policy.
_FIRST = ("independent", "search-only")
BELOW, ABOVE, OPEN, FEW = "below 5", "above 5", "not settled", "too few attempts"


@dataclasses.dataclass(frozen=True)
class TaskSpread:
    """The spread of one task and arm.

    Attributes:
        task: name of the task, or of a group of attempts.
        arm: whose attempts they are.
        measured: the numbers.
        attempts: all of them, failures and repeats included.
        wasted: share of seconds of attempts that neither set a new best nor led to one.
    """

    task: str
    arm: str
    measured: Spread
    attempts: int
    wasted: float

    @property
    def state(self) -> str:
        """Whether W is settled, against ``PAYS``."""
        found = self.measured
        if math.isnan(found.spread):
            return FEW
        # As they are shown, so that nobody reads 5.0 as below 5.
        if round(found.high, 1) < PAYS:
            return BELOW
        return ABOVE if round(found.low, 1) > PAYS else OPEN

    @property
    def shown(self) -> str:
        """W with its interval, to a tenth."""
        found = self.measured
        if math.isnan(found.spread):
            return BLANK
        low, high = (number(one, 2) for one in (found.low, found.high))
        return f"{number(found.spread, 2)} [{low}, {high}]"

    @property
    def where(self) -> str:
        """The task and, where it has a name, the arm."""
        return f"{self.task} ({self.arm})" if self.arm else self.task


def measure(
    task: str,
    arm: str,
    value: Floats,
    seconds: Floats,
    *,
    attempts: int,
    wasted: float,
    bins: int = 5,
) -> TaskSpread:
    """The spread of some attempts.

    Args:
        task: name.
        arm: name; empty where there is none.
        value: [valid first runs], higher is better.
        seconds: [valid first runs].
        attempts: all that were made.
        wasted: share of their seconds, see ``TaskSpread``.
        bins: of equal value, at least.
    """
    found = score_free_spread(value, seconds, bins=bins)
    return TaskSpread(task, arm, found, attempts, wasted)


def of_runs(
    task: Goal, arm: str, runs: Sequence[RunRecords], *, first_step: bool = False,
    bins: int = 5,
) -> TaskSpread:  # fmt: skip
    """The spread of a task's runs: first runs of valid scripts, of all seeds together.

    The same script counts once, however many attempts or seeds wrote it: its seconds
    differ by noise alone. In order of runs (seeds), steps and chains.

    Args:
        task: the task.
        arm: name.
        runs: of the task.
        first_step: leave out what came after the first step, which learning or parents
            have shaped.
        bins: of equal value, at least.
    """
    seen: set[str] = set()
    value, seconds, wasted, attempts = [], [], [], 0
    for run in runs:
        rows = _rows(run, first_step)
        at = run.attempts
        attempts += int(rows.sum())
        for row in np.flatnonzero(rows & at.valid & at.run).tolist():
            script = at.script[row] or at.run_id[row]
            if script not in seen:
                seen.add(script)
                value.append(at.value[row])
                seconds.append(at.delta_s[row])
        wasted.append(_wasted(run, rows))
    total = sum(spent for _, spent in wasted)
    lost = sum(some for some, _ in wasted)
    return measure(
        task.short,
        arm,
        np.array(value, float),
        np.array(seconds, float),
        attempts=attempts,
        wasted=lost / total if total > 0 else math.nan,
        bins=bins,
    )


def _rows(run: RunRecords, first_step: bool) -> Bools:
    at = run.attempts
    return at.known & (at.step == 0) if first_step else at.known


def _wasted(run: RunRecords, rows: Bools) -> tuple[float, float]:
    """(wasted seconds, seconds) of a run."""
    at, picked = run.attempts, np.flatnonzero(rows)
    place = {at.run_id[row]: i for i, row in enumerate(picked.tolist())}
    parent = [place.get(at.parent[row] or "", -1) for row in picked.tolist()]
    valid = at.valid[picked]
    value = np.where(valid, at.value[picked], math.nan)
    seconds = at.delta_s[picked]
    total = float(seconds.sum())
    share = wasted_share(value, seconds, parent=parent)
    return (share * total if total > 0 else 0.0), total


def has_gradient(run: RunRecords) -> bool:
    """Whether the run's arm trains the policy."""
    arm = run.config.get("arm")
    return not (isinstance(arm, dict) and not arm.get("gradient", True))


def untrained_arms(experiment: Experiment, task: Goal) -> list[str]:
    """Arms of a task without a gradient."""
    arms = experiment.arms(task)
    return [a for a in arms if not has_gradient(experiment.of(task, a)[0])]


def spreads(
    experiment: Experiment, arms: Sequence[str] = (), *, bins: int = 5
) -> list[TaskSpread]:
    """One row a task and arm.

    Args:
        experiment: what was recorded.
        arms: names; none: all arms without a gradient, or else the first step of all.
        bins: of equal value, at least.
    """
    out = []
    for task in experiment.tasks:
        here = experiment.arms(task)
        chosen = [a for a in arms if a in here] if arms else None
        if chosen is None:
            chosen = untrained_arms(experiment, task)
            if not chosen:
                out.append(_first_steps(experiment, task, bins))
        out += [
            of_runs(task, arm, experiment.of(task, arm), bins=bins) for arm in chosen
        ]
    return out


def reported(experiment: Experiment) -> list[TaskSpread]:
    """One row a task: its untrained arm that is nearest to independent draws."""
    out = []
    for task in experiment.tasks:
        arms = untrained_arms(experiment, task)
        pick = [a for a in _FIRST if a in arms] + arms
        out.append(
            of_runs(task, pick[0], experiment.of(task, pick[0]))
            if pick
            else _first_steps(experiment, task, 5)
        )
    return out


def _first_steps(experiment: Experiment, task: Goal, bins: int) -> TaskSpread:
    runs = [r for a in experiment.arms(task) for r in experiment.of(task, a)]
    return of_runs(task, "first step", runs, first_step=True, bins=bins)
