"""What the tests of the synthetic tasks share: a cache and the data in it."""

import functools
import os
from pathlib import Path

from repo_paths import TESTS

from rpg_tasks.prepare import TaskData, prepare_task
from rpg_tasks.registry import TASKS, load_tasks
from sandbox_exec import Level, LocalPool

# Ours alone, whatever RPG_TASKS_PATH adds.
SHORTS = tuple(s for s, task in load_tasks().items() if task.folder.parent == TASKS)
SCRIPTS = TESTS / "reference_scripts"


def shared_cache(tmp_path_factory) -> Path:
    """One cache for all tests of a run, also over several worker processes."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tasks"


def own_core() -> int:
    """A core that no other worker process of this test run takes, as far as they go."""
    cores = sorted(os.sched_getaffinity(0))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return cores[-1 - int(worker) % len(cores)]


def one_slot() -> LocalPool:
    """A pool for scripts that need no cage.

    One core, as every task's record says: threads that wait for each other on a loaded
    machine make boosted trees a hundred times slower.
    """
    return LocalPool(
        slots=1,
        cores=(own_core(),),
        require=Level.POSIX,
        calibrate=False,
        rerun_contended=False,
    )


@functools.cache
def small_data(cache: Path, short: str) -> TaskData:
    """A task's small data, looked up once per process (a look costs a stat a file)."""
    return prepare_task(short, cache_dir=cache)
