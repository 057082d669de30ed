"""From settings to a finished experiment: check, say what will run, run, sum up."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.config import plain
from experiments.config.errors import Stopped, UsageError
from experiments.config.settings import Settings, read_settings
from experiments.console.screen import Screen
from experiments.console.stop import catch_terminate
from experiments.records import rundir
from experiments.records.results import Row, write_rows
from experiments.running import sweep
from experiments.running.places import Places
from experiments.running.task_run import Parts

_ANEW = "a replay starts anew: choose another --out"


def resume_command(settings: Settings, places: Places) -> str:
    """The command line that goes on with a stopped experiment."""
    words = ["python", "-m", "experiments.mle_bench", "--resume", f"--out={places.out}"]
    for name in ("data_dir", "cache_dir", "leaderboards"):
        value = getattr(places, name)
        if value is not None:
            words.append(f"--{name}={value}")
    return shlex.join(words)


def launch(
    settings: Settings,
    places: Places,
    parts: Parts,
    identity: dict[str, Any],
    *,
    screen: Screen | None = None,
    resume: bool = False,
    replay: Path | None = None,
    report: bool = True,
) -> int:
    """Run an experiment; its exit code.

    Args:
        settings: what is run.
        places: where.
        parts: with what.
        identity: further facts for config.json that a resumed run must share.
        screen: what the user sees.
        resume: go on with ``places.out``.
        replay: folder of an experiment to reproduce.
        report: build the HTML report at the end.

    Raises:
        UsageError: the folder holds another experiment, another process is at work in
            it, or there is nothing to replay.
    """
    screen = screen or Screen()
    config = plain.to_plain(settings) | identity
    if replay is not None:
        sweep.check_replay(settings, replay)
        config["replay_of"] = _identity_of(replay)
    grown = resume and _has_grown(settings, places.out)
    growing = ("budget",) if grown else ()
    rundir.open_run(places.out, config, resume=resume, growing=growing)
    with rundir.sole_writer(places.out), catch_terminate() as signals:
        try:
            failed = sweep.run_tasks(
                settings, places.out, parts, screen, resume=resume, replay=replay
            )
            return _sum_up(settings, places, parts, screen, failed, replay, report)
        except (KeyboardInterrupt, Stopped) as error:
            screen.end()
            rows, _ = sweep.rows_of(settings, places.out)
            _write(rows, places.out, screen)
            screen.say(str(error) or "stopped")
            if replay is None:
                screen.say(f"go on with: {resume_command(settings, places)}")
            else:
                screen.say(_ANEW)
            return signals.exit_code


def _has_grown(settings: Settings, folder: Path) -> bool:
    """Whether the budget is larger than the stored run's.

    Then it goes on: nothing that a run has done depends on when it ends.
    """
    new = settings.budget
    try:
        old = read_settings(folder).budget
        return old != new and old.extended(new.seconds, new.steps) == new
    except (UsageError, ValueError):
        return False


def _sum_up(
    settings: Settings,
    places: Places,
    parts: Parts,
    screen: Screen,
    failed: list[str],
    replay: Path | None,
    report: bool,
) -> int:
    """Write and show the results; the exit code."""
    rows, damaged = sweep.rows_of(settings, places.out)
    for place, reason in damaged.items():
        # A task that failed has said so already.
        if place.relative_to(places.out).parts[0] not in failed:
            screen.fail(reason)
    written = _write(rows, places.out, screen)
    screen.results(rows, compiled_s=getattr(parts.clock, "compiled_s", 0.0))
    if replay is not None and not failed and not damaged:
        steps = [row["steps"] for row in rows if row["steps"]]
        screen.say(
            f"replay  {sum(steps)} steps of {len(steps)} runs came out bit for bit as "
            f"they are on record in {replay}"
        )
    if report and any(row["steps"] for row in rows):
        _report(places.out, screen)
    _where(settings, places, screen, failed, replay)
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


def _report(folder: Path, screen: Screen) -> None:
    """Build the report; a failure there costs no result."""
    try:
        from experiments.reporting.build import build

        report = build([folder], leave_out_damaged=True)
    except Exception as error:
        screen.fail(
            f"the report could not be made ({type(error).__name__}: {error}); the "
            f"results are safe: python -m experiments.report {folder}"
        )
    else:
        screen.say(f"result  {report.headline}")
        rates = [f for f in report.files if f.name == "rates.png"]
        for file in rates:
            screen.say(f"figure  {file}")
        screen.say(f"report  {report.page} (open it in a browser)")


def _where(
    settings: Settings,
    places: Places,
    screen: Screen,
    failed: Sequence[str],
    replay: Path | None,
) -> None:
    out = places.out
    screen.say(f"runs    {out}/TASK/ARM/seed-K: attempts.jsonl, scripts/, final.jsonl")
    screen.say(f"curves  tensorboard --logdir={shlex.quote(str(out))}")
    screen.say(f"again   python -m experiments.report {shlex.quote(str(out))}")
    if failed:
        tasks = len(settings.tasks)
        retry = f"retry with: {resume_command(settings, places)}"
        if replay is not None:
            retry = _ANEW
        elif all(sweep.read_state(out / t)["status"] == "diverged" for t in failed):
            retry = "--resume would come to the same"
        screen.say(
            f"failed  {', '.join(failed)} ({tasks - len(failed)} of {tasks} tasks "
            f"done); {retry}"
        )
    else:
        screen.say(f"done    {out / 'result.csv'}")
