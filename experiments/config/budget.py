"""When a run is over."""

import dataclasses
import math

CLOCKS = ("total", "attempt", "execution")


@dataclasses.dataclass(frozen=True)
class Budget:
    """When a run is over: at the first of the two limits that it reaches.

    Attributes:
        seconds: on ``clock``, or None.
        steps: number of steps, or None.
        clock: ``total`` (wall time of the run's own phases; the others' turns do not
            count), ``attempt`` (generation and execution) or ``execution``, the latter
            two as means over chains, at least a tenth of a second an attempt. A step
            that has begun is finished.
    """

    seconds: float | None = None
    steps: int | None = None
    clock: str = "total"

    def __post_init__(self) -> None:
        if self.seconds is None and self.steps is None:
            raise ValueError("a run needs a budget: seconds, steps or both")
        for name in ("seconds", "steps"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive, got {value}")
        if self.clock not in CLOCKS:
            raise ValueError(f"clock must be one of {CLOCKS}, got {self.clock!r}")

    def extended(self, seconds: float | None, steps: int | None) -> "Budget":
        """This budget with larger limits; None leaves one as it is.

        Raises:
            ValueError: a limit would be new or smaller, which ends runs that are over.
        """
        limits = {"seconds": seconds, "steps": steps}
        for name, value in limits.items():
            old = getattr(self, name)
            if value is not None and (old is None or value < old):
                was = "without limit" if old is None else f"{old:g}"
                raise ValueError(
                    f"a budget can grow, not shrink: {name} was {was}, not {value:g}"
                )
        return dataclasses.replace(
            self,
            seconds=self.seconds if seconds is None else seconds,
            steps=self.steps if steps is None else steps,
        )

    def share(self, used: dict[str, float]) -> float:
        """Share of the budget that is used; 1 or more when the run is over."""
        shares = []
        if self.seconds is not None:
            shares.append(used[self.clock] / self.seconds)
        if self.steps is not None:
            shares.append(used["steps"] / self.steps)
        return max(shares)
