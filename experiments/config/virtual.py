"""Executions from a table, on a clock of declared seconds.

A study needs tens of seeds, and their scripts are mostly the same few. A table holds
what each script took and scored when it ran; a run then costs its sampling and updates
alone. Its clock cannot be the wall's: phases last what is declared here, scripts what
the table says.
"""

from __future__ import annotations

import dataclasses
import math

from experiments.config.errors import UsageError

REAL = "real"
_PREFIX = "table:"


@dataclasses.dataclass(frozen=True)
class Virtual:
    """The clock of a run whose executions come from a table.

    Attributes:
        table: folder of the table.
        sampling_s: seconds that the answers of one step take to write.
        update_s: seconds of one update.
        slots: scripts that run at one time.
        runs: real runs of a script whose mean it is charged.
    """

    table: str
    sampling_s: float = 0.2
    update_s: float = 0.9
    slots: int = 1
    runs: int = 2

    def __post_init__(self) -> None:
        for name in ("sampling_s", "update_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, got {value}")
        for name in ("slots", "runs"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    @property
    def in_words(self) -> str:
        """What every output says of it."""
        return (
            f"executions from a table (mean of {self.runs} runs of each script); the "
            f"clock is virtual: {self.sampling_s:g} s a sampling, {self.update_s:g} s "
            f"an update, {self.slots} script(s) at a time"
        )


def table_of(executions: str) -> str | None:
    """Folder that ``real`` or ``table:DIR`` names; None for ``real``.

    Raises:
        UsageError: it is neither.
    """
    if executions == REAL:
        return None
    folder = executions.removeprefix(_PREFIX)
    if not executions.startswith(_PREFIX) or not folder:
        raise UsageError(f"--executions={executions}: choose real, or table:DIR")
    return folder
