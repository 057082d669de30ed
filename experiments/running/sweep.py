"""Task after task: a failure costs its task, not the sweep."""

from __future__ import annotations

import contextlib
import functools
import json
import time
import traceback
from pathlib import Path
from typing import Any

from experiments.config.errors import (
    Diverged,
    LedgerError,
    LoopError,
    Stopped,
    UsageError,
)
from experiments.config.settings import Settings
from experiments.console import track
from experiments.records import rundir
from experiments.records.ledger import read
from experiments.records.recorded import METRICS
from experiments.records.results import FROM_TABLE, Row, empty_row, row_of, run_folder
from experiments.running.experiment import Experiment
from experiments.running.runs import Runs
from experiments.running.speedrun_run import SpeedrunRun
from experiments.running.task_run import TaskRun
from rpg_tasks.registry import TaskError, get_task
from rpg_tasks.speedrun.record import get_speedrun
from sandbox_exec.errors import SandboxError

STATE = "task.json"
TRACE = "error.txt"
# Their messages say what to do.
_KNOWN = (LoopError, TaskError, SandboxError, UsageError, FloatingPointError)


def _is_known(error: Exception) -> bool:
    from rpg_jax.llm.errors import CheckpointError  # imports much

    return isinstance(error, (*_KNOWN, CheckpointError))


def read_state(folder: Path) -> dict[str, Any]:
    """What became of a task: its ``status``, and why.

    Statuses: ``new``, ``running``, ``stopped``, ``failed``, ``diverged`` (an update was
    not finite, and would not be again), ``done``, ``test lost`` (all but a score on the
    private test, which the machinery lost) and ``replayed``.
    """
    try:
        state = json.loads((folder / STATE).read_text("utf-8"))
    except (OSError, ValueError):
        return {"status": "new"}
    return state if isinstance(state, dict) and "status" in state else {"status": "new"}


def begun(settings: Settings, folder: Path, short: str) -> bool:
    """Whether any run of a task has a finished step on record."""
    places = (
        run_folder(folder, short, arm.name, seed) / METRICS
        for arm in settings.arms
        for seed in settings.seeds
    )
    return any(place.exists() and place.stat().st_size for place in places)


def owing(settings: Settings, folder: Path, short: str) -> bool:
    """Whether a run of a finished task has not used up what is now the budget."""
    for arm in settings.arms:
        for seed in settings.seeds:
            path = run_folder(folder, short, arm.name, seed) / METRICS
            used = None
            with contextlib.suppress(LedgerError):  # reported with the results
                for _, metrics in read(path):
                    used = metrics["used"]
            if used is not None and settings.budget.share(used) < 1:
                return True
    return False


def check_replay(settings: Settings, replay: Path) -> None:
    """Refuse to replay a run without a finished step.

    Raises:
        UsageError: there is nothing to replay.
    """
    if not any(begun(settings, replay, short) for short in settings.tasks):
        raise UsageError(f"{replay} holds no finished step: there is nothing to replay")


def run_tasks(experiment: Experiment) -> list[str]:
    """Run every task; names of those that failed.

    Raises:
        Stopped, KeyboardInterrupt: Ctrl-C.
    """
    settings, screen = experiment.settings, experiment.screen
    folder, failed = experiment.places.out, []
    if not track.available():
        screen.note("tensorboardX is not installed: no TensorBoard files")
    for at, (short, source) in enumerate(
        zip(settings.tasks, settings.sources, strict=True), start=1
    ):
        place = folder / short
        if not _is_due(experiment, short):
            continue
        if len(settings.tasks) > 1:
            screen.say(f"--- {short} ({at} of {len(settings.tasks)}) ---")
        begin = time.monotonic()
        _keep_state(place, {"status": "running"})
        try:
            with track.tracked(screen):
                lost = _runs_of(experiment, short, source).run()
        except (KeyboardInterrupt, Stopped):
            _keep_state(place, {"status": "stopped"})
            raise
        except Exception as error:
            screen.end()
            reason = _reason(error, place)
            status = "diverged" if isinstance(error, Diverged) else "failed"
            _keep_state(place, {"status": status, "reason": reason})
            screen.fail(f"{short}: {reason}")
            failed.append(short)
        else:
            status = "done" if experiment.replay is None else "replayed"
            if lost:
                status = "test lost"
                screen.note(
                    f"{short}: {lost} script(s) have no test score, by no fault of "
                    "theirs; --resume tries again"
                )
            seconds = time.monotonic() - begin
            _keep_state(place, {"status": status, "seconds": seconds})
        finally:
            screen.end()
    return failed


def _runs_of(experiment: Experiment, short: str, source: str) -> Runs:
    if experiment.settings.crossing is not None:
        return SpeedrunRun(experiment, get_speedrun(short))
    return TaskRun(experiment, get_task(short), source)


def _is_due(experiment: Experiment, short: str) -> bool:
    """Whether a task has anything left to run; says why not."""
    settings, screen = experiment.settings, experiment.screen
    folder, replay = experiment.places.out, experiment.replay
    status = read_state(folder / short)["status"]
    if experiment.resume and status in ("done", "replayed"):
        if replay is not None or not owing(settings, folder, short):
            screen.say(f"{short}: done already")
            return False
        screen.say(f"{short}: goes on, the budget has grown")
    if replay is not None and not begun(settings, replay, short):
        screen.note(f"{short}: no step of it is finished in {replay}")
        return False
    return True


def _keep_state(place: Path, state: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # a full disk has been reported already
        place.mkdir(exist_ok=True)
        rundir.write_json(place / STATE, state)


def _reason(error: Exception, place: Path) -> str:
    """One line; what nobody foresaw keeps its traceback in a file."""
    text = " ".join(str(error).split()) or type(error).__name__
    if _is_known(error):
        return text
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return (
            f"{error.strerror or text}{where}: free some space or fix the permissions, "
            "then --resume"
        )
    if "RESOURCE_EXHAUSTED" in text:
        return (
            "the accelerator's memory is full: lower --chains or --max-new-tokens, run "
            "one arm at a time, or train adapters (--lora-rank=32)"
        )
    with contextlib.suppress(OSError):
        (place / TRACE).write_text("".join(traceback.format_exception(error)), "utf-8")
    return f"{type(error).__name__}: {text[:300]} (traceback in {place / TRACE})"


def rows_of(settings: Settings, folder: Path) -> tuple[list[Row], dict[Path, str]]:
    """The rows of result.csv from what is on disk, and runs whose records are damaged.

    A damaged run has a row without numbers and costs the others nothing.
    """
    rows: list[Row] = []
    damaged: dict[Path, str] = {}
    for short, source in zip(settings.tasks, settings.sources, strict=True):
        status = read_state(folder / short)["status"]
        data = f"{source}-{settings.size}" if source == "synthetic" else source
        if settings.virtual is not None:
            data += FROM_TABLE
        for arm in settings.arms:
            for seed in settings.seeds:
                place = run_folder(folder, short, arm.name, seed)
                about = functools.partial(
                    row_of,
                    place,
                    task=short,
                    arm=arm.name,
                    seed=seed,
                    data=data,
                    clock=settings.protocol.rule.clock,
                )
                try:
                    row = about(status=status)
                except LedgerError as error:
                    damaged[place] = str(error)
                except (KeyError, TypeError, ValueError) as error:
                    what = f"{type(error).__name__}: {error}"
                    damaged[place] = f"a record in {place} is damaged ({what})"
                if place in damaged:
                    row = empty_row(
                        task=short, arm=arm.name, seed=seed, data=data, status="damaged"
                    )
                rows.append(row)
    return rows, damaged
