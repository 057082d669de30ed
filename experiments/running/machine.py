"""What this machine gives to scripts: slots, cores, isolation."""

from __future__ import annotations

import os

from experiments.config.errors import UsageError
from sandbox_exec import IsolationError, SandboxError
from sandbox_exec import prepare_engine as best_engine
from sandbox_exec.runner import Engine
from sandbox_exec.slots import available_cores


def memory_mb() -> int | None:
    """Memory of this machine, MiB; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    except (ValueError, OSError):
        return None


def slots_of(
    wanted: int | None,
    chains: int,
    *,
    overlap: bool = True,
    script_mb: int | None = None,
) -> int:
    """The number of slots, one core each.

    Args:
        wanted: as asked for; None: as many as are of use.
        chains: scripts of a step.
        overlap: whether the policy writes while scripts run: one core stays free for
            it then, where there are several.
        script_mb: memory that a script really needs, MiB: no more slots by default
            than this machine's memory holds. None: it needs little.

    Raises:
        UsageError: more than there are cores to pin them to.
    """
    cores = len(available_cores())
    most = max(1, cores - 1) if overlap else cores
    if wanted is None:
        memory = memory_mb()
        room = most if not script_mb or not memory else max(1, memory // script_mb)
        return min(most, chains, room)
    if not 1 <= wanted <= most:
        raise UsageError(
            f"--slots={wanted}: this machine has {cores} core(s)"
            f"{' and one stays free' if most < cores else ''}: 1 to {most}"
        )
    return wanted


def slot_cores(slots: int) -> tuple[int, ...]:
    """The cores of the slots: the last ones, the first is the last to be taken."""
    return available_cores()[-slots:]


def prepare_engine(least: str) -> Engine:
    """The best isolation that holds here, at least ``least``.

    Raises:
        UsageError: this machine gives less.
    """
    try:
        return best_engine(least)
    except IsolationError as error:
        raise UsageError(f"--isolation={least}: {error}") from None
    except SandboxError as error:
        raise UsageError(f"no script can be run here: {error}") from None
