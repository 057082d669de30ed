"""The real parts of an experiment: a model, a sandbox, prepared data; the first screen.

Everything that can be wrong with a command line or a machine is found here, before
anything slow starts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from experiments.config.arms import in_words
from experiments.config.errors import UsageError
from experiments.config.settings import Settings
from experiments.console.screen import Screen
from experiments.policies.clock import WORK_CLOCK
from experiments.policies.models import ModelInfo, describe, load
from experiments.running.machine import prepare_engine, slot_cores
from experiments.running.places import Places, leaderboard_of
from experiments.running.task_run import Parts
from rpg_tasks.prepare import TaskData, default_cache_dir, prepare_task
from rpg_tasks.registry import Task, TaskError, get_task
from sandbox_exec import Level, Limits, LocalPool, ScriptJob
from sandbox_exec.runner import Engine

_NO_BOUNDARY = {
    Level.POSIX: "POSIX is no boundary: scripts run with your rights",
    Level.LANDLOCK: "scripts can see and signal your processes",
}


def prepare_data(
    settings: Settings, places: Places, task: Task, source: str
) -> TaskData:
    """A task's data; built into the cache on first use.

    Raises:
        TaskError: they cannot be found or built.
    """
    return prepare_task(
        task,
        data=source,
        size=settings.size,
        seed=settings.data_seed,
        cache_dir=places.cache_dir,
        data_dir=places.data_dir,
    )


def real_parts(
    settings: Settings, places: Places, screen: Screen, *, replay: Path | None
) -> tuple[Parts, dict[str, Any]]:
    """Parts, and what config.json must hold beside the settings.

    Prints the first screen as soon as its facts are known, then reads the weights.

    Raises:
        UsageError: data, model or sandbox are not what the settings need.
    """
    info = describe(settings.model)
    engine = None if replay is not None else prepare_engine(settings.isolation)
    if len(settings.tasks) == 1:
        try:
            task = get_task(settings.tasks[0])
            prepare_data(settings, places, task, settings.sources[0])
        except TaskError as error:
            raise UsageError(str(error)) from None
    screen.facts(first_screen(settings, places, info, engine, replay))
    menus = settings.style == "menu"
    model = load(settings.model, settings.machine, menus=menus)
    keep_compilations()
    machine = settings.machine
    parts = Parts(
        policy=model.policy,
        describer=model.describer if menus else None,
        count=model.count,
        pool=None if engine is None else lambda: open_pool(settings, engine),
        prepare=lambda task, source: prepare_data(settings, places, task, source),
        leaderboard=lambda task: leaderboard_of(settings, places, task),
        clock=WORK_CLOCK.listen(),
        park=machine.park and not machine.lora_rank and info.backend != "cpu",
    )
    identity = {
        "weights": model.fingerprint,
        "parameters": info.parameters,
        "backend": info.backend,
        "sandbox": None if engine is None else engine.level.name,
    }
    return parts, identity


def keep_compilations() -> None:
    """Keep compiled programs in the user's cache: the next run has the same shapes.

    ``JAX_COMPILATION_CACHE_DIR`` names another place.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is None:
        place = default_cache_dir().parent / "jax"
        jax.config.update("jax_compilation_cache_dir", str(place))


def open_pool(settings: Settings, engine: Engine) -> LocalPool:
    """A pool of slots with one pinned core each, warm: see ``warm_up``."""
    pool = LocalPool(settings.slots, cores=slot_cores(settings.slots), engine=engine)
    warm_up(pool)
    return pool


_IMPORTS = b"""
import importlib
for name in (
    "numpy", "pandas", "scipy.sparse", "scipy.stats", "PIL.Image", "sklearn.ensemble",
    "sklearn.feature_extraction.text", "sklearn.linear_model", "sklearn.neural_network",
    "lightgbm", "xgboost", "torch",
):
    try:
        importlib.import_module(name)
    except Exception:
        pass
"""


def warm_up(pool: LocalPool) -> None:
    """Read from the disk what scripts import, before any run's clock starts.

    The first scripts after the machine's start would wait for it, and they are always
    those of the first arm: its seconds would be higher than its rivals' for no merit.
    """
    job = ScriptJob(script=_IMPORTS, task_id="warm-up", limits=Limits(wall_s=120))
    pool.submit(job).result()


def first_screen(
    settings: Settings,
    places: Places,
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
        ("clock", _clock(settings)),
        ("sandbox", _sandbox(settings, engine)),
        ("budget", f"{_budget(settings)} for each of {runs} runs"),
        *_arms(settings),
        ("chains", f"{protocol.chains} a run: scripts improved side by side"),
        ("seeds", ", ".join(map(str, settings.seeds))),
        ("folder", str(places.out)),
    ]
    if replay is not None:
        facts.append(("replay", f"of {replay}: nothing is executed"))
    if not settings.real:
        what = "synthetic data"
        if settings.model == "tiny":
            what += " and the embedded policy"
        facts.append(("note", f"{what}: results say nothing about the real benchmark"))
    return facts


def _arms(settings: Settings) -> list[tuple[str, str]]:
    lines = [f"{arm.name}: {in_words(arm)}" for arm in settings.arms]
    if any("ρ̂" in line for line in lines):
        lines.append("(ρ̂: price of a second, an estimate of the reward it could earn)")
    return [("" if at else "arms", line) for at, line in enumerate(lines)]


def _data(settings: Settings) -> str:
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
    what = {
        "attempt": "generation + execution seconds",
        "execution": "execution seconds",
    }
    return f"a script pays for {what[rule.clock]}"


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
    limits = {settings.limit_s(get_task(t)) for t in settings.tasks}
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
