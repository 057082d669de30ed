"""The reward of a speedrun: a loss that crosses a target, and the seconds it took."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from experiments.config.arms import Arm

#: An arm of the paper's words: r = 1 - T / T_cap, and time has no price.
VANILLA_TIME = Arm("vanilla-time", advantage_price="none", ranking_price="none")

# Of the published protocol (docs/nanogpt.md).
PAPER_TARGET = 3.28
PAPER_CAP_S = 1500.0
_PAPER_TOP, _PAPER_BONUS, _PAPER_W = 10.0, 5.0, 0.03


@dataclasses.dataclass(frozen=True)
class Crossing:
    """When a model has reached the target, and what that is worth.

    Attributes:
        target: L*, nats a token.
        sigma: of the soft crossing, nats; 0: r = 1[L <= L*].
        beta: what a nat below the target adds. Under 1 / slope of the end of training,
            else training longer pays.
        cap_s: seconds beyond which nothing is saved.
        contract: ``declared`` or ``callable``, see ``rpg_tasks.speedrun``.
    """

    target: float
    sigma: float
    cap_s: float
    beta: float = 1.0
    contract: str = "declared"

    def __post_init__(self) -> None:
        for name in ("target", "sigma", "cap_s", "beta"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, got {value}")
        if self.cap_s <= 0:
            raise ValueError(f"cap_s must be positive, got {self.cap_s}")

    def crossed(self, loss: float) -> bool:
        """Whether a loss reaches the target."""
        return loss <= self.target


class Earned(NamedTuple):
    """Reward, and value: what it adds to a rate."""

    reward: float
    value: float


def earned(kind: str, crossing: Crossing, loss: float | None, seconds: float) -> Earned:
    """The reward of an attempt.

        crossing     r = Phi((L* - L) / sigma) (1 + beta max(0, L* - L))
        time-saved   r = max(0, 1 - T / T_cap) if L <= L*, else 0

    A miss has the soft reward but a value of 0: it is a failure in the rate.
    ``paper-crossing`` and ``paper-crossing-vanilla`` are the published ones; there
    every loss has a value, max(0, 10 - L).

    Args:
        kind: one of ``CROSSINGS``.
        crossing: target and widths.
        loss: L; None for an attempt without one.
        seconds: T.
    """
    if kind.startswith("paper"):
        return _paper(kind, crossing, loss, seconds)
    if loss is None:
        return Earned(0.0, 0.0)
    crossed = crossing.crossed(loss)
    if kind == "time-saved":
        saved = max(0.0, 1.0 - seconds / crossing.cap_s) if crossed else 0.0
        return Earned(saved, saved)
    below = crossing.target - loss
    share = float(crossed)
    if crossing.sigma > 0:
        share = 0.5 * math.erfc(-below / (crossing.sigma * math.sqrt(2)))
    reward = share * (1.0 + crossing.beta * max(0.0, below))
    return Earned(reward, reward if crossed else 0.0)


def _paper(kind: str, crossing: Crossing, loss: float | None, seconds: float) -> Earned:
    """The published rewards; time is priced by the arm where it is ``rpg``."""
    vanilla = kind.endswith("vanilla")
    if loss is None:
        return Earned(-3000.0 if vanilla else -10.0, 0.0)
    value = max(0.0, _PAPER_TOP - loss)
    w = min(crossing.target - loss, _PAPER_W)
    if not vanilla:
        top = _PAPER_TOP - loss
        return Earned(top + _PAPER_BONUS + 100 * w if w >= 0 else top, value)
    if w >= 0:
        return Earned(-seconds + 20000 * w, value)
    return Earned(-PAPER_CAP_S - 20000 * min(-w, _PAPER_W), value)
