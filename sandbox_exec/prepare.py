"""The best isolation that this machine holds, and one script run under it."""

import os

from .environment import Environment
from .isolation import probe_isolation
from .limits import Level
from .protocol import RunRecord, ScriptJob, Slot
from .runner import Engine
from .slots import make_slots


def prepare_engine(
    require: Level | str = Level.NAMESPACES,
    *,
    level: Level | str | None = None,
    python: str | os.PathLike[str] | None = None,
) -> Engine:
    """Choose the best level this machine holds, or exactly `level`.

    Args:
        require: least level accepted.
        level: exactly this level instead.
        python: interpreter for the scripts; the running one by default.

    Raises:
        IsolationError: what holds is below `require` (or is not `level`).
        SandboxError: the interpreter cannot be used.
    """
    env = Environment.of(python)
    least = Level.parse(require)
    exactly = None if level is None else Level.parse(level)
    tries = [x for x in sorted(Level, reverse=True) if x >= least]
    for candidate in tries if exactly is None else [exactly]:
        # One level at a time: the best usually holds, the others cost start-up.
        report = probe_isolation(env.python, levels=(candidate,))
        if candidate not in report.missing:
            return Engine(level=candidate, env=env, as_nobody=report.as_nobody)
    report = probe_isolation(env.python)
    chosen = report.choose(least, exactly)
    return Engine(level=chosen, env=env, as_nobody=report.as_nobody)


def run_script(
    job: ScriptJob,
    slot: Slot | None = None,
    require: Level | str = Level.NAMESPACES,
    *,
    level: Level | str | None = None,
    python: str | os.PathLike[str] | None = None,
    attempt: int = 1,
    queue_s: float = 0.0,
) -> RunRecord:
    """Run one script and return its record.

    Args:
        job: what to run.
        slot: cores and GPUs; by default those a pool of one would use.
        require: least level accepted; the best available one is used.
        level: exactly this level instead.
        python: interpreter for the script; the running one by default.
        attempt: number of this attempt at the run_id.
        queue_s: seconds waited before, for the record.

    Raises:
        IsolationError: the machine cannot give that level; nothing was run.
        SandboxError: the interpreter cannot be used.
    """
    engine = prepare_engine(require, level=level, python=python)
    return engine.run(job, slot or make_slots(1)[0], attempt=attempt, queue_s=queue_s)
