"""What a run and an arm earned: plain statistics of their attempts.

A number of an arm is the mean over its seeds of each seed's own number, with the
standard error between seeds. Attempts that the machinery lost count nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.records.rewards import charged_seconds
from experiments.reporting import intervals, tables
from experiments.reporting.intervals import Interval
from experiments.reporting.runs import (
    STATUSES,
    Bools,
    Experiment,
    Floats,
    RunRecords,
    rule_of,
)
from rpg_jax.rewards import relative_reward
from rpg_tasks.goal import Goal
from rpg_tasks.scores import oriented

#: With fewer seeds than this, intervals are over chains.
ENOUGH_SEEDS = 3


class Units(NamedTuple):
    """What is resampled: one (reward, seconds) sum a seed, or a chain."""

    reward: Floats  # [n]
    seconds: Floats  # [n]
    kind: str  # "seeds" | "chains"


def thirds(steps: int) -> tuple[range, range] | None:
    """The first and the last third of the steps, None with fewer than three."""
    third = steps // 3
    if third < 1:
        return None
    return range(third), range(steps - third, steps)


def in_steps(run: RunRecords, steps: range) -> Bools:
    """Which attempts are known and of these steps, bool [attempts]."""
    at = run.attempts
    return at.known & (at.step >= steps.start) & (at.step < steps.stop)


def reward_rate(reward: Floats, seconds: Floats, axis: int = -1) -> Floats:
    """Reward per second, sum r / sum delta, over an axis; NaN without any time."""
    total = np.asarray(seconds.sum(axis))
    out: Floats = np.full_like(total, math.nan)
    np.divide(reward.sum(axis), total, out=out, where=total > 0)
    return out


def _rate(run: RunRecords, rows: Bools) -> float:
    at = run.attempts
    return float(reward_rate(at.earned[rows], at.delta_s[rows]))


def statistics(run: RunRecords) -> dict[str, float]:
    """The numbers of one run.

    Returns:
        ``attempts``, the share of each status and of ``repeats``, ``valid_share`` (of
        attempts that the machinery did not lose), ``score_valid`` (mean given valid),
        ``best_score``, ``seconds_mean``, ``seconds_median`` and ``seconds_p95`` on the
        rule's clock, ``execution_mean``, ``generation_mean``, ``rate`` (sum of rewards
        without penalty or bonus over sum of seconds) and ``rate_last_third``.
    """
    at, known, valid = run.attempts, run.attempts.known, run.attempts.valid
    out = {"attempts": float(len(at)), "steps": float(run.steps)}
    out["share_repeats"] = float(at.repeat.mean())
    for status in STATUSES:
        out[f"share_{status}"] = at.status.count(status) / len(at)
    scores = at.score[valid]
    best = math.nan
    if len(scores):
        pick = np.argmax([oriented(run.task, s) for s in scores.tolist()])
        best = float(scores[pick])
    run_rows = at.run  # a repeat's seconds are no script's
    seconds = at.delta_s[run_rows]
    some = len(seconds) > 0
    last = thirds(run.steps)
    return out | {
        "valid_share": float(valid[known].mean()) if known.any() else math.nan,
        "score_valid": float(scores.mean()) if len(scores) else math.nan,
        "best_score": best,
        "seconds_mean": float(seconds.mean()) if some else math.nan,
        "seconds_median": float(np.median(seconds)) if some else math.nan,
        "seconds_p95": float(np.percentile(seconds, 95)) if some else math.nan,
        "execution_mean": float(at.execution_s[run_rows].mean()) if some else math.nan,
        "generation_mean": float(at.generation_s[known].mean())
        if known.any()
        else math.nan,
        "rate": _rate(run, known),
        "rate_last_third": _rate(run, in_steps(run, last[1])) if last else math.nan,
    }


def over_seeds(runs: Sequence[RunRecords]) -> dict[str, tables.Estimate]:
    """Mean and standard error over seeds of each of ``statistics``.

    A seed without a number (no valid attempt: no score) does not count in it.
    """
    each = [statistics(run) for run in runs]
    out = {}
    for name in each[0]:
        values = [row[name] for row in each if math.isfinite(row[name])]
        out[name] = (
            tables.repetitions(values)
            if values
            else tables.Estimate(math.nan, math.nan)
        )
    return out


def unit_kind(experiment: Experiment, task: Goal) -> str:
    """``seeds`` if every arm of the task has enough of them, else ``chains``."""
    fewest = min(len(experiment.of(task, arm)) for arm in experiment.arms(task))
    return "seeds" if fewest >= ENOUGH_SEEDS else "chains"


def units(runs: Sequence[RunRecords], kind: str) -> Units:
    """Sums of reward and of seconds (rule's clock) of each seed, or of each chain."""
    reward, seconds = [], []
    for run in runs:
        at, known = run.attempts, run.attempts.known
        groups = at.chain if kind == "chains" else np.zeros(len(at), np.int64)
        for group in np.unique(groups[known]):
            rows = known & (groups == group)
            reward.append(at.earned[rows].sum())
            seconds.append(at.delta_s[rows].sum())
    return Units(np.array(reward), np.array(seconds), kind)


def rate_interval(one: Units) -> Interval:
    """sum of rewards / sum of seconds, units resampled."""
    return _bootstrap([one], lambda rates: rates[0])


def rate_difference(a: Units, b: Units) -> Interval:
    """Rate of a minus rate of b, units of both resampled."""
    return _bootstrap([a, b], lambda rates: rates[0] - rates[1])


def _bootstrap(
    groups: Sequence[Units], combine: Callable[[list[Floats]], Floats]
) -> Interval:
    def statistic(*indices: np.ndarray, axis: int = -1) -> Floats:
        rates = []
        for group, index in zip(groups, indices, strict=True):
            index = index.astype(np.int64)
            rates.append(reward_rate(group.reward[index], group.seconds[index], axis))
        return combine(rates)

    if any(len(g.seconds) == 0 or g.seconds.sum() <= 0 for g in groups):
        return intervals.NONE
    # Units without any time would divide 0 by 0 when drawn alone.
    groups = [Units(g.reward[g.seconds > 0], g.seconds[g.seconds > 0], g.kind)
              for g in groups]  # fmt: skip
    indices = [np.arange(len(g.seconds)) for g in groups]
    return intervals.bootstrap(indices, statistic)


def relative_rewards(run: RunRecords, price: float) -> Floats:
    """reward - price * charged seconds, shape [attempts]; NaN for lost attempts.

    Failures are charged by the protocol's rule, whatever the arm's own charge, so that
    arms can be compared.
    """
    at, rule = run.attempts, rule_of(run.config)
    limit = float(run.config.get("limit_s") or 0.0)
    out = np.full(len(at), math.nan)
    valid, known = at.valid, at.known
    for step in np.unique(at.step):
        rows = known & (at.step == step)
        charged = charged_seconds(rule, at.delta_s[rows], valid[rows], limit)
        reward = np.where(at.repeat[rows], 0.0, at.reward[rows])
        out[rows] = relative_reward(reward, charged, price)
    return out
