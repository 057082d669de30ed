"""Random problems, their exact solution, and the form of a check's result."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Relative room for float32 rounding in a comparison of two rates.
ROUNDING = 1e-5


class Check(NamedTuple):
    """One measured statement."""

    name: str
    quantity: str
    value: float
    required: str
    held: bool


class Problems(NamedTuple):
    """N random problems of X contexts and A actions, float64."""

    reward: Float[np.ndarray, "problems contexts actions"]  # >= 0
    duration: Float[np.ndarray, "problems contexts actions"]  # seconds
    probs: Float[np.ndarray, "problems contexts"]


PerProblem = Float[np.ndarray, " problems"]


def random_problems(
    seed: int, number: int, contexts: int = 4, arms: int = 6
) -> Problems:
    """Problems whose arms differ widely in reward and in seconds.

    Raises:
      ValueError: no problem, context or arm.
    """
    if min(number, contexts, arms) < 1:
        raise ValueError(
            f"need at least 1 problem, context and arm, got {number}, {contexts} "
            f"and {arms}"
        )
    rng = np.random.default_rng(seed)
    shape = (number, contexts, arms)
    spread = rng.uniform(0.1, 1.2, (number, 1, 1))
    return Problems(
        reward=rng.gamma(1.0, 1.0, shape),
        duration=np.exp(spread * rng.normal(size=shape)),
        probs=rng.dirichlet(np.ones(contexts), number),
    )


def greedy_sums(problems: Problems, rate: PerProblem) -> tuple[PerProblem, PerProblem]:
    """Expected reward and seconds of the policies greedy at ``rate``."""
    value = problems.reward - rate[:, None, None] * problems.duration
    pick = np.argmax(value, axis=-1)[..., None]
    reward = np.take_along_axis(problems.reward, pick, -1)[..., 0]
    duration = np.take_along_axis(problems.duration, pick, -1)[..., 0]
    return (problems.probs * reward).sum(-1), (problems.probs * duration).sum(-1)


def exact_rates(problems: Problems) -> tuple[PerProblem, PerProblem]:
    """Best rate and the expected seconds D* of its policy, in float64."""
    rate = np.zeros(len(problems.reward))
    for _ in range(100):
        reward, duration = greedy_sums(problems, rate)
        if np.array_equal(reward / duration, rate):
            return rate, duration
        rate = reward / duration
    raise RuntimeError("Dinkelbach's iteration did not terminate in 100 steps")
