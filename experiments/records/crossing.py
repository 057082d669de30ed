"""What turns a speedrun's loss and seconds into a reward."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from experiments.config.crossing import Crossing, earned
from experiments.records.spec import Scoring


@dataclasses.dataclass(frozen=True)
class CrossingScoring(Scoring):
    """Of a speedrun; a score is seconds to the target, or under ``paper`` the loss.

    Attributes:
        crossing: target and widths.
    """

    noisy: ClassVar[bool] = True

    crossing: Crossing | None = None

    def reward(
        self,
        score: float | None,
        best: float | None,
        fields: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[float, float]:
        """(reward, value); a miss has no score but a loss in ``fields``."""
        assert self.crossing is not None
        seconds = fields.get("execution_s") or 0.0
        if self.rule.script_clock == "cpu":
            seconds = fields.get("cpu_s") or 0.0
        return earned(self.rule.kind, self.crossing, fields.get("loss"), seconds)
