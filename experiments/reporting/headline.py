"""The first lines of a report: which arm earned more reward per second."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from experiments.reporting import gates, numbers
from experiments.reporting.contests import Contest, hint
from experiments.reporting.runs import Experiment
from experiments.reporting.sheet import number, percent_change

#: So many sentences, one a task, where tasks compare different arms.
_SENTENCES = 3


def headline(experiment: Experiment, found: Sequence[Contest]) -> str:
    """One or two sentences over all tasks."""
    if not found:
        return _alone(experiment)
    pairs = {(c.first, c.second) for c in found}
    if len(found) == 1 or len(pairs) > 1:
        text = " ".join(c.sentence() for c in found[:_SENTENCES])
        if found[_SENTENCES:]:
            more = len(found) - _SENTENCES
            text += f" The table of reward per second has {more} more tasks."
    else:
        text = _over_tasks(found)
    return " ".join([text, *_others(experiment, found)])


def _alone(experiment: Experiment) -> str:
    """Where no task has two arms."""
    arms = ", ".join(experiment.arms())
    rates = []
    for task in experiment.tasks:
        for arm in experiment.arms(task):
            rate = numbers.over_seeds(experiment.of(task, arm))["rate"].mean
            rates.append(f"{number(rate)} on {task.short}")
    return f"Only {arms} was run. Reward per second: {', '.join(rates)}."


def _over_tasks(found: Sequence[Contest]) -> str:
    """The same two arms on several tasks."""
    first, second = found[0].first, found[0].second
    missing = [c.task.short for c in found if not c.measured]
    found = [c for c in found if c.measured]
    if not found:
        return f"{first} and {second}: no task has measured attempts of both."
    gated = [c for c in found if c.gate is not None]
    why = gates.by_kind([(c.gate, c.task.short) for c in gated if c.gate])
    if len(gated) == len(found):
        return f"Reward per second of {first} and {second}: no verdict ({why})."
    found = [c for c in found if c.gate is None]
    ahead = sum(c.rates[0].value > c.rates[1].value for c in found)
    clear = [c for c in found if c.excludes_0]
    won = sum(c.difference.low > 0 for c in clear)
    text = (
        f"{first} earned more reward per second than {second} in {ahead} of "
        f"{len(found)} tasks ({_percents(found)}). "
    )
    if clear:
        text += (
            f"The 95% interval of the difference excludes 0 in {len(clear)} of them "
            f"({first} ahead in {won}, {second} in {len(clear) - won}){hint(clear)}."
        )
    else:
        text += (
            "The 95% interval of the difference includes 0 in all of them, so these "
            "runs do not show which arm is better."
        )
    if why:
        text += f" No verdict: {why}."
    if missing:
        text += f" No measured attempts of both: {', '.join(missing)}."
    return text


def _others(experiment: Experiment, found: Sequence[Contest]) -> list[str]:
    """Arms beside the two with the highest rate, if there are any."""
    best: dict[str, list[str]] = {}
    for contest in (c for c in found if c.gate is None):
        rates = {
            arm: numbers.rate_interval(
                numbers.units(experiment.of(contest.task, arm), "seeds")
            ).value
            for arm in experiment.arms(contest.task)
        }
        rates = {arm: rate for arm, rate in rates.items() if math.isfinite(rate)}
        top = max(rates, key=rates.__getitem__, default=contest.first)
        if top not in (contest.first, contest.second):
            best.setdefault(top, []).append(contest.task.short)
    if not best:
        return []
    parts = [f"{arm} on {', '.join(names)}" for arm, names in best.items()]
    return [f"The highest reward per second of all arms: {'; '.join(parts)}."]


def _percents(found: Sequence[Contest]) -> str:
    """The first arm's rate over the second's, per cent: each, or the median of many."""
    ratios = [(c.task.short, c.percent) for c in found if math.isfinite(c.percent)]
    if not ratios:
        if any(c.rates[1].value for c in found):
            return "no ratio: rates below 0"
        some = any(c.rates[0].value for c in found)
        return "the other earned nothing" if some else "neither earned anything"
    if len(ratios) <= 4:
        return ", ".join(f"{percent_change(v)}% on {name}" for name, v in ratios)
    middle = statistics.median(value for _, value in ratios)
    return f"median {percent_change(middle)}%"
