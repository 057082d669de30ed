"""Arms: what a run learns from and ranks by, as independent switches.

``rpg`` and ``vanilla`` differ in the price of a second alone. Each further arm turns
one more switch of one of them, so that a difference in a curve has one cause.

Beside the arms that have names of their own, ``OBJECTIVE[+RATE[-PLACE]]`` names each
combination of objective, rate and where it is the price (``SYSTEMATIC``): ``max-at-k``
has no price, ``max-at-k+own`` has one in the advantage and in the ranking, and
``max-at-k+own-advantage`` in the advantage alone.
"""

import dataclasses
import math
from typing import Any

from experiments.config import plain
from experiments.config.objective import OBJECTIVES

PRICES = ("none", "estimated", "fixed", "on-policy", "own")
SIGNALS = ("relative", "ratio")
WEIGHTS = ("none", "duration")
CHARGES = ("measured", "slowest", "limit")
POLICIES = ("model", "random-edits")
PARENTS = ("ranked", "none")


@dataclasses.dataclass(frozen=True)
class Arm:
    """One way to turn rewards and seconds into a learning signal.

    Attributes:
        name: as in ``--arms``.
        advantage_price: price of a second in the learning signal: ``none``, the rate
            model's ``estimated`` rho, which is the greedy policy's, a ``fixed`` one,
            the batch's own ``on-policy`` rate sum r / sum delta, or the policy's
            ``own`` recent rate, the same over recent batches.
        ranking_price: the same for the ranking that chooses the next states.
        fixed_price: reward per second, for ``fixed``.
        signal: ``relative`` (r - price * delta) or ``ratio`` (r / delta per attempt),
            in the advantage and in the ranking. ``ratio`` divides the penalty of a
            failure too: the more seconds it is charged, the milder.
        weight: ``duration`` multiplies an advantage by charged / mean charged seconds.
        failure_charge: seconds charged to a failure; None takes the protocol's.
        gradient: false leaves the policy as it is: ranking only.
        policy: what writes answers: the experiment's ``model``, or ``random-edits``,
            which draws them from the task's recipe and knows nothing.
        parents: ``ranked`` attempts are shown, to be improved; with ``none`` every
            attempt answers the base prompt, so that all draws are independent.
        objective: what r stands for above: the ``reward``, or with ``max-at-k`` w, what
            the attempt adds to the best of those still to come (``MaxAtK``). Rates are
            then rates of w.
    """

    name: str
    advantage_price: str = "estimated"
    ranking_price: str = "estimated"
    fixed_price: float = 0.0
    signal: str = "relative"
    weight: str = "none"
    failure_charge: str | None = None
    gradient: bool = True
    policy: str = plain.later("model")
    parents: str = plain.later("ranked")
    objective: str = plain.later("reward")

    def __post_init__(self) -> None:
        for field, choices in (
            ("advantage_price", PRICES),
            ("ranking_price", PRICES),
            ("signal", SIGNALS),
            ("weight", WEIGHTS),
            ("failure_charge", (None, *CHARGES)),
            ("policy", POLICIES),
            ("parents", PARENTS),
            ("objective", OBJECTIVES),
        ):
            if getattr(self, field) not in choices:
                raise ValueError(
                    f"{field} must be one of {choices}, got {getattr(self, field)!r}"
                )
        if not (math.isfinite(self.fixed_price) and self.fixed_price >= 0):
            raise ValueError(f"a price must be finite and >= 0, got {self.fixed_price}")


def _unpriced(name: str, **switches: Any) -> Arm:
    return Arm(name, advantage_price="none", ranking_price="none", **switches)


ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("rpg"),
        _unpriced("vanilla"),
        _unpriced("search-only", gradient=False),
        _unpriced("independent", gradient=False, parents="none"),
        _unpriced("random-edits", gradient=False, policy="random-edits"),
        Arm("fixed-price", advantage_price="fixed", ranking_price="fixed"),
        _unpriced("ratio", signal="ratio"),
        Arm("on-policy-rate", advantage_price="on-policy", ranking_price="on-policy"),
        # Yang et al. (2025): longer actions weigh more, their time costs nothing.
        _unpriced("duration-weighted", weight="duration"),
        Arm(
            "rpg-best",
            advantage_price="own",
            ranking_price="own",
            objective="max-at-k",
        ),
    )
}

#: Words of a name -> values of the switches.
_RATES = {"greedy": "estimated", "own": "own"}
_PLACES = {
    "": ("advantage_price", "ranking_price"),
    "-advantage": ("advantage_price",),
    "-ranking": ("ranking_price",),
}


def _systematic() -> dict[str, Arm]:
    arms = {}
    for objective in OBJECTIVES:
        arms[objective] = _unpriced(objective, objective=objective)
        for rate, price in _RATES.items():
            for place, fields in _PLACES.items():
                name = f"{objective}+{rate}{place}"
                switches: dict[str, Any] = dict.fromkeys(fields, price)
                arms[name] = dataclasses.replace(arms[objective], name=name, **switches)
    return arms


#: Each combination of objective, rate and place of the price, by its name.
SYSTEMATIC: dict[str, Arm] = _systematic()


def register_arm(arm: Arm) -> Arm:
    """Let ``--arms`` name an arm of your own.

    Raises:
        ValueError: another arm has that name.
    """
    if {**SYSTEMATIC, **ARMS}.get(arm.name, arm) != arm:
        raise ValueError(f"there is an arm {arm.name!r} already: choose another name")
    ARMS[arm.name] = arm
    return arm


def get_arm(name: str, *, fixed_price: float | None = None) -> Arm:
    """The arm of that name.

    Args:
        name: a key of ``ARMS`` or of ``SYSTEMATIC``.
        fixed_price: reward per second; ``fixed-price`` needs it, others refuse it.

    Raises:
        ValueError: no such arm, or a price missing or not needed.
    """
    named = {**SYSTEMATIC, **ARMS}
    if name not in named:
        raise ValueError(
            f"there is no arm {name!r}: choose from {', '.join(ARMS)}, or "
            f"{', '.join(SYSTEMATIC)}"
        )
    arm = named[name]
    if arm.advantage_price == "fixed" and not arm.fixed_price:
        if fixed_price is None:
            raise ValueError("the arm fixed-price needs a price, reward per second")
        return dataclasses.replace(arm, fixed_price=float(fixed_price))
    if fixed_price is not None:
        raise ValueError(f"the arm {name} has no hand-set price")
    return arm


def in_words(arm: Arm) -> str:
    """What an arm learns from (or ranks by), in a few words."""
    signal = _signal(arm, arm.advantage_price if arm.gradient else arm.ranking_price)
    if arm.policy == "random-edits":
        return f"edits drawn at random; goes on from the scripts of highest {signal}"
    if arm.parents == "none" and not arm.gradient:
        return "no training, no parents: independent draws of the policy"
    if not arm.gradient:
        return f"no training; goes on from the scripts of highest {signal}"
    weighted = ", long attempts weigh more" if arm.weight == "duration" else ""
    ranked = charged = ""
    if arm.ranking_price != arm.advantage_price:
        ranked = "; goes on from the scripts of highest "
        ranked += _signal(arm, arm.ranking_price)
    if arm.failure_charge is not None:
        charged = f"; a failure is charged {_CHARGED[arm.failure_charge]}"
    return f"learns from {signal}{weighted}{ranked}{charged}"


def _signal(arm: Arm, choice: str) -> str:
    """Reward less the price of its seconds, in words."""
    earned = {"reward": "reward", "max-at-k": "max@k reward"}[arm.objective]
    if arm.signal == "ratio":
        return f"{earned} / seconds"
    prices = {
        "estimated": "ρ̂",
        "fixed": f"{arm.fixed_price:g}" if arm.fixed_price else "price set by hand",
        "on-policy": "the batch's rate",
        "own": "the policy's own rate",
    }
    return f"{earned} − {prices[choice]} · seconds" if choice in prices else earned


_CHARGED = {
    "measured": "its own seconds",
    "slowest": "the slowest valid attempt's seconds",
    "limit": "the time limit",
}


def price(
    choice: str, arm: Arm, *, estimated: float, on_policy: float, own: float
) -> float:
    """The price of a second, in the unit of the arm's objective per second.

    Args:
        choice: ``arm.advantage_price`` or ``arm.ranking_price``.
        arm: gives the fixed price.
        estimated: the rate model's rho.
        on_policy: sum r / sum delta of the last batch.
        own: the same of recent batches, which weigh less the older they are.
    """
    return {
        "none": 0.0,
        "estimated": estimated,
        "fixed": arm.fixed_price,
        "on-policy": on_policy,
        "own": own,
    }[choice]
