"""Which estimator of the reward rate sees which attempts, and the names of estimators.

Nothing here needs JAX: the built-in estimators are registered by where they are.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Callable
from typing import Any

from experiments.config import plain

DATA = ("greedy", "slots")


@dataclasses.dataclass(frozen=True)
class RateOptions:
    """Which estimator sees which attempts.

    Attributes:
        estimator: ``--rate``, a name in ``ESTIMATORS``. It is looked up where it is
            used, so that the record of a run can be read without its plugins.
        data: ``--rate-data``.
        leave_one_out: charge a batch at the rate of earlier batches, once there are
            any: a batch that fits its own charge pulls it towards itself.
        window: valid attempts that the greedy part is chosen from.
        recent_batches: batches whose failures make the failures' component.
        forgetting: share of the last fit that the next keeps (``niw``, ``slots``).
        quantile: of the predictive ratio (``niw``, ``slots``).
        step_size: of ``robbins-monro``.
        num_steps: optimizer steps per batch of ``neural``.
        own_decay: weight of a batch in the policy's own rate, against the next one's.
    """

    estimator: str = "niw"
    data: str = "greedy"
    leave_one_out: bool = True
    window: int = 1280
    recent_batches: int = 4
    forgetting: float = 0.3
    quantile: float = 0.95
    step_size: float = 0.5
    num_steps: int = 100
    own_decay: float = plain.later(0.8)

    def __post_init__(self) -> None:
        if self.data not in DATA:
            raise ValueError(f"rate data must be one of {DATA}, got {self.data!r}")
        if self.window < 1 or self.recent_batches < 1 or self.num_steps < 1:
            raise ValueError("window, recent batches and steps must be at least 1")
        if not 0 < self.step_size < float("inf"):
            raise ValueError(f"step size must be positive, got {self.step_size}")
        if not 0 <= self.own_decay <= 1:
            raise ValueError(f"own_decay must be 0 to 1, got {self.own_decay}")


# (options, chains) -> a RateEstimator, or a LoopEstimator (experiments.loop.estimators)
EstimatorFactory = Callable[[RateOptions, int], Any]

ESTIMATORS: dict[str, EstimatorFactory | str] = {
    "niw": "experiments.loop.estimators:niw",
    "robbins-monro": "experiments.loop.estimators:robbins_monro",
    "neural": "experiments.loop.estimators:neural",
    "empirical": "experiments.loop.estimators:empirical",
}


def register_estimator(name: str, factory: EstimatorFactory | str) -> None:
    """Let ``--rate`` name an estimator of your own.

    Args:
        name: what ``--rate`` is given.
        factory: ``factory(options, chains)`` returns a ``RateEstimator``, or a
            ``LoopEstimator`` that also says how the loop feeds it. A string
            ``module:function`` is imported when the estimator is first used.

    Raises:
        ValueError: another estimator has that name.
    """
    if ESTIMATORS.get(name, factory) != factory:
        raise ValueError(f"there is an estimator {name!r} already: choose another name")
    ESTIMATORS[name] = factory


def check_estimator(name: str) -> None:
    """Refuse a name that is not registered.

    Raises:
        ValueError: there is no such estimator; lists those that there are.
    """
    if name not in ESTIMATORS:
        raise ValueError(
            f"there is no estimator {name!r}: choose from {', '.join(ESTIMATORS)}, or "
            "name the file that registers it with --plugins"
        )


def get_estimator(name: str) -> EstimatorFactory:
    """The factory of that name, imported if need be.

    Raises:
        ValueError: there is no such estimator.
    """
    check_estimator(name)
    factory = ESTIMATORS[name]
    if isinstance(factory, str):
        found: EstimatorFactory = pkgutil.resolve_name(factory)
        return found
    return factory
