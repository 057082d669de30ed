"""The first screen: what will run, in words."""

from __future__ import annotations

import os
from pathlib import Path

from experiments.config.arms import in_words
from experiments.config.settings import Settings
from experiments.policies.models import ModelInfo
from rpg_tasks.goals import get_goal
from sandbox_exec import Level
from sandbox_exec.runner import Engine

_NO_BOUNDARY = {
    Level.POSIX: "POSIX is no boundary: scripts run with your rights",
    Level.LANDLOCK: "scripts can see and signal your processes",
}


def first_screen(
    settings: Settings,
    out: Path,
    info: ModelInfo,
    engine: Engine | None,
    replay: Path | None,
) -> list[tuple[str, str]]:
    """What will run, in words: (name, text) lines."""
    protocol = settings.protocol
    runs = len(settings.tasks) * len(settings.arms) * len(settings.seeds)
    facts = [
        ("data", _data(settings)),
        ("policy", _policy(settings, info)),
        (
            "reward",
            f"{protocol.rule.kind}, {protocol.reward_split} split; protocol "
            f"{protocol.name}",
        ),
        ("rate", f"{protocol.rate.estimator}, data {protocol.rate.data}"),
        ("clock", _clock(settings)),
        ("sandbox", _sandbox(settings, engine)),
        *_virtual(settings),
        ("budget", f"{_budget(settings)} for each of {runs} runs"),
        *_arms(settings),
        ("chains", f"{protocol.chains} a run: scripts improved side by side"),
        ("seeds", ", ".join(map(str, settings.seeds))),
        ("folder", str(out)),
    ]
    if replay is not None:
        facts.append(("replay", f"of {replay}: nothing is executed"))
    if settings.crossing is None and not settings.real:
        what = "synthetic data"
        if settings.model == "tiny":
            what += " and the embedded policy"
        facts.append(
            ("note", f"{what}: results are no evidence about the real benchmark")
        )
    return facts


def _arms(settings: Settings) -> list[tuple[str, str]]:
    lines = [f"{arm.name}: {in_words(arm)}" for arm in settings.arms]
    if any("ρ̂" in line for line in lines):
        lines.append("(ρ̂: price of a second, an estimate of the reward it could earn)")
    return [("" if at else "arms", line) for at, line in enumerate(lines)]


def _data(settings: Settings) -> str:
    if settings.crossing is not None:
        crossing, name = settings.crossing, settings.tasks[0]
        return (
            f"{name}: seconds to a loss of {crossing.target:g}; verification: "
            f"{crossing.contract} contract"
        )
    shown = ", ".join(settings.tasks[:3])
    if len(settings.tasks) > 3:
        shown = f"{len(settings.tasks)} tasks"
    kinds = []
    for source in dict.fromkeys(settings.sources):
        count = settings.sources.count(source)
        some = f" for {count}" if len(set(settings.sources)) > 1 else ""
        if source == "synthetic":
            kinds.append(f"synthetic, size {settings.size}{some}")
        else:
            kinds.append(f"real (MLE-Bench){some}")
    return f"{'; '.join(kinds)}, seed {settings.data_seed}: {shown}"


def _policy(settings: Settings, info: ModelInfo) -> str:
    menus = "; it chooses from menus" if settings.style == "menu" else ""
    return f"{info.name}, {info.millions}, on {info.backend.upper()}{menus}"


def _clock(settings: Settings) -> str:
    rule = settings.protocol.rule
    execution = (
        "execution CPU seconds" if rule.script_clock == "cpu" else ("execution seconds")
    )
    what = {"attempt": f"generation + {execution}", "execution": execution}
    return f"a script pays for {what[rule.clock]}"


def _virtual(settings: Settings) -> list[tuple[str, str]]:
    virtual = settings.virtual
    return (
        [] if virtual is None else [("table", f"{virtual.in_words}: {virtual.table}")]
    )


def _budget(settings: Settings) -> str:
    budget, limits = settings.budget, []
    words = {
        "total": "of its own wall time, compilation not counted",
        "attempt": "of generation and execution, mean over chains",
        "execution": "of execution, mean over chains",
    }
    if budget.seconds is not None:
        limits.append(f"{budget.seconds:g} s {words[budget.clock]}")
    if budget.steps is not None:
        limits.append(f"{budget.steps} step" + "s" * (budget.steps != 1))
    return " or ".join(limits)


def _sandbox(settings: Settings, engine: Engine | None) -> str:
    if engine is None:
        return "not used"
    limits = {settings.limit_s(get_goal(t)) for t in settings.tasks}
    wall = " or ".join(f"{limit:g}" for limit in sorted(limits))
    text = (
        f"{engine.level.name}, {settings.slots} script(s) at a time on one core each, "
        f"{wall} s at most"
    )
    if engine.level in _NO_BOUNDARY:
        text += f". WARNING: {_NO_BOUNDARY[engine.level]}"
    if os.geteuid() == 0 and not engine.as_nobody:
        text += "; scripts run as root without capabilities"
    return text
