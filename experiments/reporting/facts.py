"""What was run, on what, and what a reader must know before any number."""

from __future__ import annotations

import json
import time
from typing import Any

from experiments.config.arms import Arm, in_words
from experiments.config.plain import from_plain
from experiments.config.virtual import Virtual
from experiments.reporting.runs import Experiment, rule_of
from experiments.reporting.sheet import percent
from experiments.reporting.wording import is_speedrun

REWARDS = {
    "gain": "its gain over the sample submission: 0 for the sample's score or a "
    "failure, 1 for a perfect score",
    "raw": "its raw score (turned so that higher is better)",
    "paper": "the paper's: score or leaderboard percentile, with a bonus for a new "
    "best",
    "crossing": "about 1 where its model reaches the target, a little more for a loss "
    "further below it, and 0 far above it; a miss adds nothing to this rate",
    "time-saved": "the share of the time cap that it saved where its model reaches the "
    "target, else 0",
    "paper-crossing": "the paper's for a speedrun: 10 minus the loss, with a bonus for "
    "reaching the target",
    "paper-crossing-vanilla": "the paper's for vanilla: minus the seconds, with a "
    "bonus or a malus by the distance to the target",
}
CLOCKS = {
    "attempt": "generation and execution of an attempt",
    "execution": "execution of an attempt's script",
}
CHARGES = {
    "measured": "its own",
    "slowest": "at least as many as the slowest valid attempt of its step",
    "limit": "the wall limit",
}
#: Facts that a page folds away.
FOLDED = ("started", "revision", "versions", "command")
#: Above this share of disturbed scripts a report warns.
CONTENDED = 0.05


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


def _sources(experiment: Experiment) -> dict[str, Any]:
    """Each task's source of data, as far as the configurations say."""
    found: dict[str, Any] = {}
    for config in _configs(experiment):
        tasks, sources = config.get("tasks", ()), config.get("sources", ())
        found |= dict(zip(map(str, tasks), sources, strict=False))
    return found


def synthetic_tasks(experiment: Experiment) -> list[str]:
    """Tasks whose data are synthetic, as far as the configurations say."""
    found = _sources(experiment)
    return [t.short for t in experiment.tasks if found.get(t.short) == "synthetic"]


def real_tasks(experiment: Experiment) -> list[str]:
    """Tasks whose data are known to be the real competition's."""
    found = _sources(experiment)
    return [
        t.short
        for t in experiment.tasks
        if found.get(t.short) not in (None, "synthetic")
    ]


def trained_on_test(experiment: Experiment) -> bool:
    """Whether rewards came from the test answers, not from a validation split."""
    protocols = [config.get("protocol") for config in _configs(experiment)]
    return any(
        isinstance(one, dict) and one.get("reward_split") == "test" for one in protocols
    )


def virtual_clock(experiment: Experiment) -> Virtual | None:
    """The clock of runs whose executions come from a table; None: all are real."""
    found = (config.get("virtual") for config in _configs(experiment))
    stored = next((one for one in found if one), None)
    return None if stored is None else from_plain(Virtual, stored)


def _configs(experiment: Experiment) -> list[dict[str, Any]]:
    headers = [h.get("config", {}) for h in experiment.headers]
    return [*headers, *(run.config for run in experiment.runs)]


def facts(experiment: Experiment) -> list[tuple[str, str]]:
    """What was run, on what: pairs for the summary."""
    config: dict[str, Any] = {}
    for one in reversed(_configs(experiment)):
        config |= {k: v for k, v in one.items() if v is not None}
    runs, protocol = experiment.runs, config.get("protocol")
    rule = rule_of(runs[0].config)
    name = protocol.get("name", "?") if isinstance(protocol, dict) else protocol
    split = protocol.get("reward_split") if isinstance(protocol, dict) else None
    where = f" on the {split} split" if split else ""
    levels = sorted(set[str]().union(*(run.attempts.isolation for run in runs)))
    header = next((h for h in experiment.headers if h), {})
    pairs = [
        ("tasks", ", ".join(t.short for t in experiment.tasks)),
        ("score", _score(experiment)),
        ("arms", _arms(experiment)),
        ("seeds", ", ".join(map(str, sorted({run.seed for run in runs})))),
        ("attempts", _attempts(experiment)),
        ("data", _data(experiment)),
        ("policy", _policy(config)),
        ("protocol", f"{name}; reward {rule.kind}{where}"),
        ("seconds of the reward rate", CLOCKS[rule.clock]),
        ("budget", _budget(config.get("budget"))),
        ("seconds charged to a failure", CHARGES[rule.failure_charge]),
        ("sandbox isolation", ", ".join(levels) or words(config.get("isolation"))),
        ("machine", "; ".join(dict.fromkeys(_machines(experiment)))),
        ("started", words(header.get("started", ""))),
        ("finished", _last_step(experiment)),
        ("revision", words(header.get("git", ""))),
        ("versions", words(header.get("versions", ""))),
        ("command", " ".join(map(str, header.get("command", [])))),
    ]
    return [(k, v) for k, v in pairs if v and v != "None"]


def reward_in_words(experiment: Experiment) -> str:
    """What is earned per second, for a reader who is new to it."""
    reward = REWARDS[rule_of(experiment.runs[0].config).kind]
    return (
        "Reward per second: sum of rewards over sum of seconds, all attempts of an "
        f"arm. The reward of an attempt is {reward}. ρ̂ is a run's own estimate of its "
        "reward per second, which it uses as the price of a second."
    )


def _score(experiment: Experiment) -> str:
    """What a speedrun's score is; competitions have the metrics of their tasks."""
    return "; ".join(t.metric_text for t in experiment.tasks if is_speedrun(t))


def _policy(config: dict[str, Any]) -> str:
    name, size = words(config.get("model", "")), config.get("parameters")
    return f"{name} ({size:,} parameters)" if isinstance(size, int) else name


def _arms(experiment: Experiment) -> str:
    """Each arm with what it learns from, where its configuration is complete."""
    known: dict[str, Any] = {run.arm: run.config["arm"] for run in experiment.runs}
    said = []
    for name in experiment.arms():
        try:
            said.append(f"{name} ({in_words(Arm(**known[name]))})")
        except (TypeError, ValueError):
            said.append(name)
    return "; ".join(said)


def _attempts(experiment: Experiment) -> str:
    runs = experiment.runs
    attempts = sum(len(run.attempts) for run in runs)
    known = sum(int(run.attempts.known.sum()) for run in runs)
    valid = sum(int(run.attempts.valid.sum()) for run in runs)
    text = (
        f"{attempts:,} in {sum(run.steps for run in runs):,} steps of {len(runs)} "
        f"runs; {percent(valid / known if known else None)} valid"
    )
    if repeats := sum(int(run.attempts.repeat.sum()) for run in runs):
        text += f", {percent(repeats / attempts)} repeats that were not run again"
    if known < attempts:
        text += f", {attempts - known:,} lost by the machinery not counted"
    return text


def _last_step(experiment: Experiment) -> str:
    ends = [run.metrics["finished_at"][-1] for run in experiment.runs if run.steps]
    if not ends:
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(float(max(ends))))


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
            "data's format. These scores do not predict scores on the real "
            "competitions."
        )
    if virtual := virtual_clock(experiment):
        text = virtual.in_words
        out.append(
            f"{text[0].upper()}{text[1:]}. No second here is measured wall time."
        )
    if trained_on_test(experiment):
        out.append(
            "The reward comes from the test answers themselves (reward_split=test, as "
            "in the paper), so test scores are not held-out results."
        )
    if rule_of(experiment.runs[0].config).kind == "raw":
        out.append(
            "The reward is the raw metric. It has no natural zero, so a rate of it "
            "means little. Prices are never below 0: where rewards are negative "
            "(losses), seconds cost nothing."
        )
    if len(set(_machines(experiment))) > 1:
        out.append(
            "The runs are from different machines, so their seconds cannot be compared."
        )
    if len({json.dumps(h.get("git")) for h in experiment.headers if h}) > 1:
        out.append("The runs are from different revisions of the code.")
    executed = sum(run.attempts.executed for run in experiment.runs)
    contended = sum(run.attempts.contended for run in experiment.runs)
    share = contended / executed if executed else 0.0
    if share > CONTENDED:
        out.append(
            f"{percent(share)} of the scripts were slowed by other work on their "
            "cores, so their seconds are too high."
        )
    if experiment.unfinished:
        out.append(
            "Some runs are unfinished (listed below). The report covers what they "
            "have; equal budgets end where the shortest run ends."
        )
    return out
