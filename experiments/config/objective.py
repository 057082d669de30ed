"""What an arm's learning signal earns: the reward, or what it adds to the best of k."""

from __future__ import annotations

import dataclasses

OBJECTIVES = ("reward", "max-at-k")
BESTS = ("zero", "chain")
FORMS = ("value", "rank", "kernel", "pareto")
RANKED_BY = ("objective", "value")


@dataclasses.dataclass(frozen=True)
class MaxAtK:
    """How arms with the objective ``max-at-k`` turn a value into w (``rpg_jax``).

    k is a chain's: the attempts that it has left, at most ``max_k``.

    Attributes:
        max_k: largest k.
        k_start: k rises from here to ``max_k`` as the budget is used; None: from the
            start it is ``max_k``.
        best: b: ``zero``, or the best value of the attempt's own ``chain`` so far.
        form: w of a ``value``, or of its ``rank`` among recent ones; ``kernel`` and
            ``pareto`` are of the value, under smooth distributions that have mass
            above the best one.
        batches: recent batches of the run, the present one included, whose values
            stand for the policy's distribution.
        rank_by: parents are ranked by w, the ``objective``, or by ``value``; with a
            price, by that less the price of their seconds, at the rate of the same.
    """

    max_k: int = 16
    k_start: int | None = None
    best: str = "zero"
    form: str = "value"
    batches: int = 5
    rank_by: str = "objective"

    def __post_init__(self) -> None:
        for name, choices in (
            ("best", BESTS),
            ("form", FORMS),
            ("rank_by", RANKED_BY),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {choices}, got {getattr(self, name)!r}"
                )
        if self.max_k < 1 or self.batches < 1:
            raise ValueError("max_k and batches must be at least 1")
        if self.k_start is not None and not 1 <= self.k_start <= self.max_k:
            raise ValueError(
                f"k_start must be 1 to max_k ({self.max_k}), got {self.k_start}"
            )

    def k(self, left: float, share: float) -> float:
        """k of a step.

        Args:
            left: attempts that a chain has left, this one included; may be inf.
            share: of the budget, used so far.
        """
        most = float(self.max_k)
        if self.k_start is not None:
            most = self.k_start + (most - self.k_start) * min(max(share, 0.0), 1.0)
        return max(1.0, min(left, most))
