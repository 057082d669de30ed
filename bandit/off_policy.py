"""What a policy would have earned, from a log of another policy's decisions.

With w = u(a|x)/p(a|x) of each row, the rate of policy u is estimated by the ratio
sum w r / sum w delta: inverse propensities, self-normalised by the very quotient that a
reward rate is. Its standard error is the delta method's; the effective sample size
(sum w)^2 / sum w^2 says how many rows stand behind it. What the log does not support is
refused and not extrapolated.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bandit.instance import optimal_rate
from bandit.logged import Log

LEVEL = 1.96
#: Effective rows below which no interval is given.
MIN_ROWS = 20.0
FOLDS = 5

#: u(a|x), rows adding up to 1.
Policy = Float[np.ndarray, "contexts arms"]


class Rate(NamedTuple):
    """An off-policy estimate of a reward rate.

    Attributes:
      name: of the policy.
      rate: reward per second; nan if refused.
      low: end of the 95% interval; nan if refused.
      high: its other end.
      effective: effective sample size, rows.
      refused: why there is no estimate; empty if there is one.
    """

    name: str
    rate: float
    low: float
    high: float
    effective: float
    refused: str = ""


def weights(log: Log, policy: Policy) -> Float[np.ndarray, " rows"]:
    """w = u(a|x)/p(a|x) of each row.

    Raises:
      ValueError: not a policy over the log's contexts and arms.
    """
    policy = np.asarray(policy, np.float64)
    if policy.shape != log.counts.shape:
        raise ValueError(f"policy must be {log.counts.shape}, got {policy.shape}")
    if not ((policy >= 0).all() and np.allclose(policy.sum(axis=1), 1.0)):
        raise ValueError("a policy's rows must be probabilities that add up to 1")
    return np.asarray(policy[log.context, log.arm] / log.propensity)


def unsupported(log: Log, policy: Policy) -> float:
    """Probability, over the log's contexts, of an arm that has no row there."""
    share = np.bincount(log.context, minlength=len(log.contexts)) / len(log.context)
    return float(share @ np.where(log.counts == 0, policy, 0.0).sum(axis=1))


def off_policy_rate(
    log: Log, weight: Float[np.ndarray, " rows"], *, name: str = ""
) -> Rate:
    """Self-normalised estimate of the rate of the policy behind the weights.

    rho = sum w r / sum w delta, se = sd(w (r - rho delta)) / (mean(w delta) sqrt(n)).

    Args:
      log: the log.
      weight: w of each row, >= 0.
      name: of the policy.
    """
    weight = np.asarray(weight, np.float64)
    total = float(weight.sum())
    effective = total**2 / float((weight**2).sum()) if total > 0 else 0.0
    if effective < MIN_ROWS:
        reason = f"{effective:.0f} effective rows, fewer than {MIN_ROWS:.0f}"
        return Rate(name, np.nan, np.nan, np.nan, effective, reason)
    rate = float(weight @ log.reward / (weight @ log.seconds))
    influence = weight * (log.reward - rate * log.seconds)
    error = float(influence.std(ddof=1)) / float((weight * log.seconds).mean())
    half = LEVEL * error / np.sqrt(len(weight))
    return Rate(name, rate, rate - half, rate + half, effective)


def _one_hot(arm: Int[np.ndarray, " contexts"], num_arms: int) -> Policy:
    return np.eye(num_arms)[arm]


def _known(log: Log, values: Float[np.ndarray, "contexts arms"]) -> Policy:
    """Plays the best cell that has rows; where a context has none, the first arm."""
    return _one_hot(
        np.where(log.counts > 0, values, -np.inf).argmax(axis=1), len(log.arms)
    )


def best_rate(log: Log) -> Policy:
    """Plays argmax_a rbar - rho dbar at the log's own optimal rate (Dinkelbach)."""
    reward, seconds = log.means()
    share = np.bincount(log.context, minlength=len(log.contexts)) / len(log.context)
    seen = share > 0
    # A cell without rows stands for the best-paid one that has: nothing is gained.
    stand_in = np.where(log.counts > 0, reward / seconds, -np.inf).argmax(axis=1)
    at = np.where(log.counts > 0, np.arange(len(log.arms)), stand_in[:, None])
    reward, seconds = (
        np.take_along_axis(table, at, axis=1) * share[:, None]
        for table in (reward, seconds)
    )
    rate = optimal_rate(reward[seen], seconds[seen])
    return _known(log, np.where(seen[:, None], reward - rate * seconds, 0.0))


def most_reward(log: Log) -> Policy:
    """Plays argmax_a rbar: time is free."""
    return _known(log, log.means()[0])


def best_ratio(log: Log) -> Policy:
    """Plays argmax_a rbar/dbar in each context by itself."""
    reward, seconds = log.means()
    return _known(log, reward / seconds)


def best_arm(log: Log) -> Policy:
    """The one arm of the best rate, whatever the context."""
    weight = 1.0 / log.propensity
    size = len(log.arms)
    with np.errstate(invalid="ignore"):
        rate = np.bincount(log.arm, weight * log.reward, size) / np.bincount(
            log.arm, weight * log.seconds, size
        )
    arm = int(np.where(np.isnan(rate), -np.inf, rate).argmax())
    return _one_hot(np.full(len(log.contexts), arm), size)


#: Policies that are learned from a log, by name.
LEARNERS: dict[str, Callable[[Log], Policy]] = {
    "best reward rate": best_rate,
    "best reward per second in each context": best_ratio,
    "one arm for all contexts": best_arm,
    "most reward": most_reward,
}


def cross_fitted(
    log: Log, learn: Callable[[Log], Policy], *, folds: int = FOLDS, seed: int = 0
) -> tuple[Float[np.ndarray, " rows"], float]:
    """Weights of a learned policy, each row's from a policy that has not seen it.

    Args:
      log: the log.
      learn: makes a policy of a log.
      folds: parts of the log; each is judged by what the others teach.
      seed: of the parts.

    Returns:
      w of each row, and the mean probability of arms without support.

    Raises:
      ValueError: fewer than two folds, or fewer rows than folds.
    """
    if not 2 <= folds <= len(log.context):
        raise ValueError(f"folds must be 2 to {len(log.context)}, got {folds}")
    part = np.random.default_rng(seed).permutation(len(log.context)) % folds
    weight, missing = np.zeros(len(part)), 0.0
    for fold in range(folds):
        policy = learn(log.take(part != fold))
        held_out = log.take(part == fold)
        weight[part == fold] = weights(held_out, policy)
        missing += unsupported(log, policy) / folds
    return weight, missing


def evaluate(log: Log, *, seed: int = 0) -> list[Rate]:
    """Rates of the logged policy, of uniform play and of what the log teaches."""
    uniform = np.full(log.counts.shape, 1.0 / len(log.arms))
    found = [off_policy_rate(log, np.ones(len(log.context)), name="as logged")]
    candidates = {"uniform": (weights(log, uniform), unsupported(log, uniform))}
    if len(log.context) >= FOLDS:
        for name, learn in LEARNERS.items():
            candidates[name] = cross_fitted(log, learn, seed=seed)
    for name, (weight, missing) in candidates.items():
        rate = off_policy_rate(log, weight, name=name)
        if missing > 0:
            reason = f"plays arms that the log never shows ({missing:.1%} of decisions)"
            rate = Rate(name, np.nan, np.nan, np.nan, rate.effective, reason)
        found.append(rate)
    return found
