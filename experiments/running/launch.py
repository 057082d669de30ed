"""From settings to a finished experiment: check, say what will run, run, sum up."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.config import plain
from experiments.config.errors import Stopped, UsageError
from experiments.config.settings import Settings, read_settings
from experiments.console.screen import Screen
from experiments.console.stop import catch_terminate
from experiments.records import rundir
from experiments.records.overheads import keep_overheads
from experiments.records.results import Row, write_rows
from experiments.running import sweep
from experiments.running.experiment import Experiment
from experiments.running.places import Places

#: Builds a report of run folders; has ``headline``, ``files`` and ``page``.
Report = Callable[..., Any]
#: Shows a report's curves on a console.
Show = Callable[[Any, Console], None]

_ANEW = "a replay starts from the beginning: choose another --out"


def resume_command(settings: Settings, places: Places) -> str:
    """The command line that goes on with a stopped experiment."""
    words = ["python", "-m", settings.command, "--resume", f"--out={places.out}"]
    for name in ("data_dir", "cache_dir", "leaderboards"):
        value = getattr(places, name)
        if value is not None:
            words.append(f"--{name}={value}")
    return shlex.join(words)


def launch(
    experiment: Experiment, *, report: Report | None = None, show: Show | None = None
) -> int:
    """Run an experiment; its exit code.

    Args:
        experiment: what is run, where and with what.
        report: builds the HTML report at the end; None builds none.
        show: prints its curves; None prints none.

    Raises:
        UsageError: the folder holds another experiment, another process is at work in
            it, or there is nothing to replay.
    """
    settings, out = experiment.settings, experiment.places.out
    screen, replay = experiment.screen, experiment.replay
    config = plain.to_plain(settings) | dict(experiment.identity)
    if replay is not None:
        sweep.check_replay(settings, replay)
        config["replay_of"] = _identity_of(replay)
    grown = experiment.resume and _has_grown(settings, out)
    growing = ("budget",) if grown else ()
    rundir.open_run(out, config, resume=experiment.resume, growing=growing)
    with rundir.sole_writer(out), catch_terminate() as signals:
        try:
            failed = sweep.run_tasks(experiment)
            return _sum_up(experiment, failed, report, show)
        except (KeyboardInterrupt, Stopped) as error:
            screen.end()
            rows, _ = sweep.rows_of(settings, out)
            _write(rows, out, screen)
            _overheads(experiment)
            screen.say(str(error) or "stopped")
            if replay is None:
                again = resume_command(settings, experiment.places)
                screen.say(f"go on with: {again}")
            else:
                screen.say(_ANEW)
            return signals.exit_code


def _has_grown(settings: Settings, folder: Path) -> bool:
    """Whether the budget is larger than the stored run's.

    Then it goes on. What a run has done does not depend on when it ends, but for the k
    of max-at-k: its steps keep the budget that they were run under.
    """
    new = settings.budget
    try:
        old = read_settings(folder).budget
        return old != new and old.extended(new.seconds, new.steps) == new
    except (UsageError, ValueError):
        return False


def _overheads(experiment: Experiment) -> tuple[float, float]:
    """Keep this process's seconds of loading and compiling; both."""
    compiled_s = getattr(experiment.parts.clock, "compiled_s", 0.0)
    if experiment.replay is None:
        keep_overheads(
            experiment.places.out,
            loading_s=experiment.loading_s,
            compiled_s=compiled_s,
        )
    return experiment.loading_s, compiled_s


def _sum_up(
    experiment: Experiment,
    failed: list[str],
    report: Report | None,
    show: Show | None,
) -> int:
    """Write and show the results; the exit code."""
    out, screen, replay = experiment.places.out, experiment.screen, experiment.replay
    rows, damaged = sweep.rows_of(experiment.settings, out)
    for place, reason in damaged.items():
        # A task that failed has said so already.
        if place.relative_to(out).parts[0] not in failed:
            screen.fail(reason)
    written = _write(rows, out, screen)
    loading_s, compiled_s = _overheads(experiment)
    screen.results(rows, loading_s=loading_s, compiled_s=compiled_s)
    if replay is not None and not failed and not damaged:
        steps = [row["steps"] for row in rows if row["steps"]]
        screen.say(
            f"replay  {sum(steps)} steps of {len(steps)} runs came out bit for bit as "
            f"they are on record in {replay}"
        )
    if report is not None and any(row["steps"] for row in rows):
        _report(report, show, out, screen)
    _where(experiment, failed)
    return 1 if failed or damaged or not written else 0


def _identity_of(replay: Path) -> str:
    import hashlib

    return hashlib.sha256((replay / "config.json").read_bytes()).hexdigest()


def _write(rows: list[Row], folder: Path, screen: Screen) -> bool:
    try:
        write_rows(folder / "result.csv", rows)
    except OSError as error:
        screen.fail(
            f"cannot write {folder / 'result.csv'} ({error.strerror or error}): the "
            "records are safe; free some space, then --resume"
        )
        return False
    return True


def _report(build: Report, show: Show | None, folder: Path, screen: Screen) -> None:
    """Build the report; a failure there costs no result."""
    try:
        report = build([folder], leave_out_damaged=True)
    except Exception as error:
        screen.fail(
            f"the report could not be made ({type(error).__name__}: {error}); the "
            f"results are safe: python -m experiments.report {folder}"
        )
    else:
        screen.say(f"result  {report.headline}")
        if show is not None:
            show(report, screen.console)
        screen.say(f"        {report.rates}")
        rates = [f for f in report.files if f.name in ("best.png", "rates.png")]
        for file in rates:
            screen.say(f"figure  {file}")
        screen.say(f"report  {report.page} (open it in a browser)")


def _where(experiment: Experiment, failed: Sequence[str]) -> None:
    settings, screen = experiment.settings, experiment.screen
    out = experiment.places.out
    screen.say(f"runs    {out}/TASK/ARM/seed-K: attempts.jsonl, scripts/, final.jsonl")
    screen.say(f"curves  tensorboard --logdir={shlex.quote(str(out))}")
    screen.say(f"again   python -m experiments.report {shlex.quote(str(out))}")
    if failed:
        tasks = len(settings.tasks)
        retry = f"retry with: {resume_command(settings, experiment.places)}"
        if experiment.replay is not None:
            retry = _ANEW
        elif all(sweep.read_state(out / t)["status"] == "diverged" for t in failed):
            retry = "--resume would come to the same"
        screen.say(
            f"failed  {', '.join(failed)} ({tasks - len(failed)} of {tasks} tasks "
            f"done); {retry}"
        )
    else:
        screen.say(f"done    {out / 'result.csv'}")
