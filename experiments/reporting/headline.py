"""The first lines of a report: which arm earned more per second, and what was run."""

import json
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

from experiments.reporting import numbers
from experiments.reporting.contests import Contest, hint
from experiments.reporting.load import Experiment
from experiments.reporting.sheet import gain, number, percent


def headline(experiment: Experiment, found: Sequence[Contest]) -> str:
    """One or two sentences over all tasks."""
    if not found:
        arms = ", ".join(experiment.arms())
        rates = []
        for task in experiment.tasks:
            for arm in experiment.arms(task):
                cells = experiment.of(task, arm)
                rate = numbers.over_seeds(cells)["rate"].mean
                rates.append(f"{number(rate)} on {task.short}")
        return f"Only {arms} was run: reward per second {', '.join(rates)}."
    pairs = {(c.first, c.second) for c in found}
    if len(found) == 1 or len(pairs) > 1:
        text = " ".join(c.sentence() for c in found[:3])
        if found[3:]:
            text += f" And {len(found) - 3} further tasks: see the table of contests."
        return " ".join([text, *_others(experiment, found)])
    (first, second) = next(iter(pairs))
    missing = [c.task.short for c in found if not c.measured]
    found = [c for c in found if c.measured]
    if not found:
        return f"{first} and {second}: no task has measured attempts of both."
    ahead = sum(c.rates[0].value > c.rates[1].value for c in found)
    clear = [c for c in found if c.settled]
    won = sum(c.difference.low > 0 for c in clear)
    text = (
        f"{first} earned more reward per second than {second} in {ahead} of "
        f"{len(found)} tasks ({_gains(found)}). "
    )
    if clear:
        text += (
            f"The 95% interval of the difference leaves out 0 in {len(clear)} of them "
            f"({won} for {first}, {len(clear) - won} for {second}){hint(clear)}."
        )
    else:
        text += (
            "In none of them does the 95% interval of the difference leave out 0: this "
            "does not settle which arm is better."
        )
    if missing:
        text += f" No measured attempts of both: {', '.join(missing)}."
    return " ".join([text, *_others(experiment, found)])


def _others(experiment: Experiment, found: Sequence[Contest]) -> list[str]:
    """Arms beside the two with the highest rate, if there are any."""
    best: dict[str, list[str]] = {}
    for contest in found:
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
    return [f"Of all arms the most per second was earned by {'; '.join(parts)}."]


def _gains(found: Sequence[Contest]) -> str:
    """The first arm's gains in per cent: each, or the median of many."""
    gains = [(c.task.short, c.gain) for c in found if math.isfinite(c.gain)]
    if not gains:
        if any(c.rates[1].value for c in found):
            return "no ratio: rates below 0"
        some = any(c.rates[0].value for c in found)
        return "the other earned nothing" if some else "neither earned anything"
    if len(gains) <= 4:
        return ", ".join(f"{gain(value)}% on {name}" for name, value in gains)
    middle = statistics.median(value for _, value in gains)
    return f"median of {len(gains)} tasks: {gain(middle)}%"


def words(value: Any) -> str:
    """A value of a configuration on one line."""
    if isinstance(value, dict):
        parts = (f"{k} {words(v)}" for k, v in value.items() if v is not None)
        return ", ".join(parts)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(words, value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def synthetic_tasks(experiment: Experiment) -> list[str]:
    """Tasks whose data are synthetic, as far as the configurations say."""
    found = {}
    for config in _configs(experiment):
        tasks, sources = config.get("tasks", ()), config.get("sources", ())
        found |= dict(zip(map(str, tasks), sources, strict=False))
    return [t.short for t in experiment.tasks if found.get(t.short) == "synthetic"]


def trained_on_test(experiment: Experiment) -> bool:
    """Whether rewards came from the test answers, not from a validation split."""
    protocols = [config.get("protocol") for config in _configs(experiment)]
    return any(
        isinstance(one, dict) and one.get("reward_split") == "test" for one in protocols
    )


def _configs(experiment: Experiment) -> list[dict[str, Any]]:
    headers = [h.get("config", {}) for h in experiment.headers]
    return [*headers, *(cell.config for cell in experiment.cells)]


CHARGES = {
    "measured": "its own",
    "slowest": "at least those of its step's slowest valid attempt",
    "limit": "the wall limit",
}


def facts(experiment: Experiment) -> list[tuple[str, str]]:
    """What was run, on what: pairs for the summary."""
    config: dict[str, Any] = {}
    for one in reversed(_configs(experiment)):
        config |= {k: v for k, v in one.items() if v is not None}
    cells, protocol = experiment.cells, config.get("protocol")
    attempts = sum(len(c.attempts) for c in cells)
    known = sum(int(c.attempts.known.sum()) for c in cells)
    valid = sum(int(c.attempts.valid.sum()) for c in cells)
    share = f"{percent(valid / known if known else None)} valid"
    if known < attempts:
        share += f", {attempts - known:,} lost by the machinery not counted"
    seeds = sorted({c.seed for c in cells})
    rule = numbers.rule_of(cells[0])
    name = protocol.get("name", "?") if isinstance(protocol, dict) else protocol
    ends = [c.metrics["finished_at"][-1] for c in cells if c.steps]
    isolation = set().union(*(c.attempts.isolation for c in cells))
    header = next((h for h in experiment.headers if h), {})
    pairs = [
        ("tasks", ", ".join(t.short for t in experiment.tasks)),
        ("arms", ", ".join(experiment.arms())),
        ("seeds", ", ".join(map(str, seeds))),
        (
            "attempts",
            f"{attempts:,} in {sum(c.steps for c in cells):,} steps of {len(cells)} "
            f"runs; {share}",
        ),
        ("data", _data(experiment)),
        ("policy", words(config.get("model", ""))),
        ("protocol", f"{name}, reward {rule.kind}"),
        ("clock of the reward", f"{rule.clock} seconds"),
        ("budget", _budget(config.get("budget"))),
        ("seconds charged to a failure", CHARGES[rule.failure_charge]),
        ("isolation", ", ".join(sorted(isolation)) or words(config.get("isolation"))),
        ("machine", "; ".join(dict.fromkeys(_machines(experiment)))),
        ("started", words(header.get("started", ""))),
        (
            "last step",
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(max(ends))) if ends else "",
        ),
        ("revision", words(header.get("git", ""))),
        ("versions", words(header.get("versions", ""))),
        ("command", " ".join(map(str, header.get("command", [])))),
    ]
    return [(k, v) for k, v in pairs if v and v != "None"]


#: Facts that a page folds away.
FOLDED = ("started", "revision", "versions", "command")


def _budget(budget: Any) -> str:
    if not isinstance(budget, dict):
        return ""
    parts = []
    if budget.get("seconds"):
        parts.append(f"{budget['seconds']:g} seconds ({budget.get('clock')} clock)")
    if budget.get("steps"):
        parts.append(f"{budget['steps']} steps")
    return " or ".join(parts) + " per run" if parts else ""


def _data(experiment: Experiment) -> str:
    """Sources of the data with their size and seed."""
    out = []
    for config in _configs(experiment):
        sources = config.get("sources")
        if not sources:
            continue
        if isinstance(sources, list):
            sources = list(dict.fromkeys(sources))
        text = words(sources)
        if "synthetic" in text and config.get("size"):
            text += f" ({config['size']})"
        if config.get("data_seed") is not None:
            text += f", seed {config['data_seed']}"
        out.append(text)
    return "; ".join(dict.fromkeys(out))


def _machines(experiment: Experiment) -> list[str]:
    return [words(h["machine"]) for h in experiment.headers if h.get("machine")]


def cautions(experiment: Experiment) -> list[str]:
    """What a reader must know before any number."""
    out = []
    synthetic = synthetic_tasks(experiment)
    if synthetic:
        whole = len(synthetic) == len(experiment.tasks)
        whose = "" if whole else f"of {', '.join(synthetic)} "
        out.append(
            f"The data {whose}are synthetic: small, made from a seed, in the real "
            "data's form. Such scores say nothing about the real competitions."
        )
    if trained_on_test(experiment):
        out.append(
            "The reward comes from the test answers themselves (reward_split=test, as "
            "in the paper): test scores and medals are of the exam that was trained on."
        )
    if numbers.rule_of(experiment.cells[0]).kind == "raw":
        out.append(
            "The reward is the raw metric: it has no zero, so that a rate says little. "
            "Prices are floored at 0: where rewards are negative (losses), seconds "
            "cost nothing."
        )
    if len(set(_machines(experiment))) > 1:
        out.append("The runs are from different machines: seconds are not comparable.")
    if len({json.dumps(h.get("git")) for h in experiment.headers if h}) > 1:
        out.append("The runs are of different revisions of the code.")
    attempts = sum(len(c.attempts) for c in experiment.cells)
    contended = sum(c.attempts.contended for c in experiment.cells) / attempts
    if contended > 0.05:
        out.append(
            f"{percent(contended)} of the scripts were disturbed by other work on "
            "their cores: their seconds are too many."
        )
    if experiment.unfinished:
        out.append(
            "Unfinished, as listed below. What is there is reported; equal budgets end "
            "where the shortest run ends."
        )
    return out
