"""Which estimator of the reward rate sees which attempts."""

import dataclasses

ESTIMATORS = ("niw", "robbins-monro", "neural", "empirical")
DATA = ("greedy", "slots")


@dataclasses.dataclass(frozen=True)
class RateOptions:
    """Which estimator sees which attempts.

    Attributes:
        estimator: ``--rate``.
        data: ``--rate-data``.
        leave_one_out: charge a batch at the rate of earlier batches, once there are
            any: a batch that fits its own charge pulls it towards itself.
        window: valid attempts that the greedy part is chosen from.
        recent_batches: batches whose failures make the failures' component.
        forgetting: share of the last fit that the next keeps (``niw``, ``slots``).
        quantile: of the predictive ratio (``niw``, ``slots``).
        step_size: of ``robbins-monro``.
        num_steps: optimizer steps per batch of ``neural``.
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

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(
                f"rate must be one of {ESTIMATORS}, got {self.estimator!r}"
            )
        if self.data not in DATA:
            raise ValueError(f"rate data must be one of {DATA}, got {self.data!r}")
        if self.window < 1 or self.recent_batches < 1 or self.num_steps < 1:
            raise ValueError("window, recent batches and steps must be at least 1")
        if not 0 < self.step_size < float("inf"):
            raise ValueError(f"step size must be positive, got {self.step_size}")
