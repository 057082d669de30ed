"""What this machine gives to scripts: slots, cores, isolation."""

from __future__ import annotations

from experiments.cli import UsageError
from sandbox_exec import IsolationError, SandboxError
from sandbox_exec.runner import Engine
from sandbox_exec.slots import available_cores


def default_slots(chains: int) -> int:
    """Slots of one core each: one core stays free where there are several."""
    return max(1, min(len(available_cores()) - 1, chains))


def slots_of(wanted: int | None, chains: int) -> int:
    """The number of slots.

    Raises:
        UsageError: more than there are cores to pin them to.
    """
    most = max(1, len(available_cores()) - 1)
    if wanted is None:
        return default_slots(chains)
    if not 1 <= wanted <= most:
        raise UsageError(
            f"--slots={wanted}: this machine has {most + 1 if most > 1 else most} "
            f"core(s), one stays free for the harness: 1 to {most}"
        )
    return wanted


def slot_cores(slots: int) -> tuple[int, ...]:
    """The cores of the slots; the first core is left alone where there are several."""
    cores = available_cores()
    return cores[1 : 1 + slots] if len(cores) > 1 else cores[:1]


def prepare_engine(least: str) -> Engine:
    """The best isolation that holds here, at least ``least``.

    Raises:
        UsageError: this machine gives less.
    """
    try:
        return Engine.prepare(least)
    except IsolationError as error:
        raise UsageError(f"--isolation={least}: {error}") from None
    except SandboxError as error:
        raise UsageError(f"no script can be run here: {error}") from None
