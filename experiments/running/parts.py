"""The real parts of an experiment: a model, a sandbox, prepared data.

Everything that can be wrong with a command line or a machine is found here, before
anything slow starts.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import cast

from experiments.config.errors import UsageError
from experiments.config.settings import Settings
from experiments.console.first_screen import first_screen
from experiments.console.screen import Screen
from experiments.policies.clock import WORK_CLOCK
from experiments.policies.models import Model, NoModel, describe, load
from experiments.running.experiment import Experiment, Parts
from experiments.running.machine import prepare_engine, slot_cores
from experiments.running.places import Places, leaderboard_of
from experiments.running.sweep import check_replay
from rpg_tasks.prepare import TaskData, default_cache_dir, prepare_task
from rpg_tasks.registry import Task, TaskError, get_task
from rpg_tasks.speedrun.data import prepare_speedrun
from rpg_tasks.speedrun.record import get_speedrun
from rpg_tasks.task import Size, Source
from sandbox_exec import Limits, LocalPool, ScriptJob
from sandbox_exec.runner import Engine
from sandbox_exec.slots import available_cores


def prepare_data(
    settings: Settings, places: Places, task: Task, source: str
) -> TaskData:
    """A task's data; built into the cache on first use.

    Raises:
        TaskError: they cannot be found or built.
    """
    return prepare_task(
        task,
        data=cast(Source, source),
        size=cast(Size, settings.size),
        seed=settings.data_seed,
        cache_dir=places.cache_dir,
        data_dir=places.data_dir,
    )


def open_experiment(
    settings: Settings,
    places: Places,
    *,
    resume: bool = False,
    replay: Path | None = None,
) -> Experiment:
    """An experiment with its real parts.

    Prints the first screen as soon as its facts are known, then reads the weights.

    Raises:
        UsageError: data, model or sandbox are not what the settings need.
    """
    begin = time.monotonic()
    screen = Screen()
    if replay is not None:
        check_replay(settings, replay)
    info = describe(settings.model)
    engine = None if replay is not None else prepare_engine(settings.isolation)
    if len(settings.tasks) == 1:
        try:
            _prepare_first(settings, places)
        except TaskError as error:
            raise UsageError(str(error)) from None
    screen.facts(first_screen(settings, places.out, info, engine, replay))
    model = load(settings.model, settings.machine, menus=settings.style == "menu")
    keep_compilations()
    identity = {
        "weights": model.fingerprint,
        "parameters": info.parameters,
        "backend": info.backend,
        "sandbox": None if engine is None else engine.level.name,
    }
    parts = _parts(settings, places, model, engine)
    return Experiment(settings, places, parts, identity, screen, resume, replay,
                      loading_s=time.monotonic() - begin)  # fmt: skip


def _prepare_first(settings: Settings, places: Places) -> None:
    """The data of the one task, so that what is wrong with them is said at once."""
    name = settings.tasks[0]
    if settings.crossing is not None:
        prepare_speedrun(get_speedrun(name), cache_dir=places.cache_dir)
        return
    prepare_data(settings, places, get_task(name), settings.sources[0])


def _parts(
    settings: Settings, places: Places, model: Model | NoModel, engine: Engine | None
) -> Parts:
    machine = settings.machine
    return Parts(
        policy=functools.partial(model.policy, unverified=places.unverified),
        describer=model.describer if settings.style == "menu" else None,
        count_tokens=model.count,
        pool=None if engine is None else lambda: open_pool(settings, engine),
        prepare=lambda task, source: prepare_data(settings, places, task, source),
        leaderboard=lambda task: leaderboard_of(settings, places, task),
        clock=WORK_CLOCK.listen(),
        park=machine.park and not machine.lora_rank and not model.on_cpu,
        verifying=(
            None
            if engine is None or settings.crossing is None
            else lambda: open_verifying(engine)
        ),
    )


def keep_compilations() -> None:
    """Keep compiled programs in the user's cache: the next run has the same shapes.

    ``JAX_COMPILATION_CACHE_DIR`` names another place.
    """
    import jax

    if jax.config.values.get("jax_compilation_cache_dir") is None:
        place = default_cache_dir().parent / "jax"
        jax.config.update("jax_compilation_cache_dir", str(place))


def open_pool(settings: Settings, engine: Engine) -> LocalPool:
    """A pool of slots with one pinned core each, warm: see ``warm_up``.

    A disturbed run is repeated where its wall seconds count; its CPU seconds are sound.
    """
    pool = LocalPool(
        settings.slots,
        cores=slot_cores(settings.slots),
        engine=engine,
        rerun_contended=settings.protocol.rule.script_clock == "wall",
    )
    warm_up(pool)
    return pool


def open_verifying(engine: Engine) -> LocalPool:
    """One slot for verification, on the first core, which training shares.

    Nothing is paid by its seconds, and those of training are CPU seconds, or wall
    seconds of a GPU.
    """
    return LocalPool(
        1, cores=available_cores()[:1], engine=engine, rerun_contended=False
    )


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
