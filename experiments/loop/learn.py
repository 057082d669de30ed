"""From a batch of attempts to what the policy learns from."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.config.arms import Arm
from experiments.config.reward_rule import RewardRule
from experiments.loop.baseline import ParentBaseline
from experiments.policies.base import Signals
from experiments.records.rewards import charged_seconds
from rpg_jax.losses import leave_one_out_advantage
from rpg_jax.rewards import relative_reward


class Rows(NamedTuple):
    """A batch of attempts in the order of their chains; arrays of shape [B]."""

    reward: np.ndarray  # with penalty or bonus
    value: np.ndarray  # without; 0 for a failure
    seconds: np.ndarray  # measured, on the rule's clock
    valid: np.ndarray  # bool
    known: np.ndarray  # bool; false where the machinery failed
    chain: np.ndarray  # int


def rows_of(attempts: list[dict[str, Any]]) -> Rows:
    """The numbers of a step's records, one per chain and in their order."""

    def column(name: str, kind: type) -> np.ndarray:
        # What an infrastructure error leaves out is 0 here and masked everywhere.
        return np.array([kind(a[name] or 0) for a in attempts], kind)

    return Rows(
        reward=column("reward", float),
        value=column("value", float),
        seconds=column("delta_s", float),
        valid=column("valid", bool),
        known=np.array([a["status"] != "infrastructure" for a in attempts], bool),
        chain=column("chain", int),
    )


def on_policy_rate(rows: Rows) -> float:
    """sum r / sum delta of one batch, at least 0."""
    total = rows.seconds[rows.known].sum()
    return max(float(rows.value[rows.known].sum() / total), 0.0) if total > 0 else 0.0


def relative_rewards(
    reward: np.ndarray, charged: np.ndarray, *, arm: Arm, price: float
) -> np.ndarray:
    """r - price * charged, or r / charged for an arm that learns from ratios."""
    if arm.signal == "ratio":
        return reward / charged
    return np.asarray(relative_reward(reward, charged, price))


def make_signals(
    arm: Arm,
    rule: RewardRule,
    rows: Rows,
    *,
    price: float,
    limit_s: float,
    baseline: ParentBaseline | None = None,
    features: np.ndarray | None = None,
    cap_gainless: bool = False,
) -> Signals:
    """Relative rewards, weights and advantages of a batch.

        relative = r - price * charged  (or r / charged),
        A_i = (relative_i - mean of the others) * weight_i

    With a ``baseline`` the mean is what it predicts from the parents.

    All rows are one group: chains have prompts of their own, so a group per prompt
    would have one member and no baseline.

    Args:
        arm: signal form, weight, and maybe a failure charge of its own.
        rule: the protocol's failure charge.
        rows: the batch.
        price: reward per second.
        limit_s: wall limit of a script, seconds.
        baseline: of ``--advantage=parent``; it keeps the batch.
        features: of the parents, for the baseline.
        cap_gainless: see ``Learning``.
    """
    if arm.failure_charge is not None:
        rule = dataclasses.replace(rule, failure_charge=arm.failure_charge)
    known = rows.known
    charged = np.zeros(len(known))
    charged[known] = charged_seconds(
        rule, rows.seconds[known], rows.valid[known], limit_s
    )
    relative, weight = np.zeros(len(known)), np.zeros(len(known))
    priced = functools.partial(relative_rewards, arm=arm, price=price)
    relative[known] = priced(rows.reward[known], charged[known])
    weight[known] = 1.0
    if arm.weight == "duration" and known.any():
        weight[known] = charged[known] / charged[known].mean()
    if baseline is not None and features is not None:
        advantage = baseline.advantage(rows.reward, charged, known, features, priced)
    else:
        signal = jnp.asarray(relative, np.float32)
        advantage = np.asarray(
            leave_one_out_advantage(signal, jnp.asarray(known)), np.float64
        )
    advantage = advantage * weight
    if cap_gainless:
        advantage = capped(advantage, rows)
    return Signals(relative, advantage, weight, charged, known)


def capped(advantage: np.ndarray, rows: Rows) -> np.ndarray:
    """At most 0 for a script that gains nothing, unless none of its batch gains.

    A price above what a batch earns makes quick scripts of no gain look good.

    Args:
        advantage: shape [B].
        rows: the batch; a value above 0 is a gain.
    """
    gains = rows.known & (rows.value > 0)
    if not gains.any():
        return advantage
    return np.where(gains, advantage, np.minimum(advantage, 0.0))
