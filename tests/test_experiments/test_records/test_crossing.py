"""Rewards of a speedrun: faster crossers first, misses and crashes last."""

import dataclasses
import math

import numpy as np
import pytest
import speedrun_help as helper

from experiments.config.crossing import Crossing, earned
from experiments.config.reward_rule import RewardRule
from experiments.records.crossing import CrossingScoring
from experiments.records.rewards import charged_seconds

CROSSING = Crossing(target=2.30, sigma=0.02, cap_s=45.0)
CRASH, MISS = None, 2.36


def ordered(attempts, kind="crossing"):
    """Names by relative reward at the true rate, best first.

    Args:
        attempts: (name, loss or None, seconds).
        kind: of the reward.
    """
    rewards = [earned(kind, CROSSING, loss, s) for _, loss, s in attempts]
    seconds = np.array([s for _, _, s in attempts])
    valid = np.array(
        [loss is not None and CROSSING.crossed(loss) for _, loss, _ in attempts]
    )
    rate = max(r.value / s for r, s in zip(rewards, seconds, strict=True))
    charged = charged_seconds(RewardRule(kind=kind), seconds, valid, 90.0)
    relative = np.array([r.reward for r in rewards]) - rate * charged
    return [attempts[i][0] for i in np.argsort(-relative, kind="stable")]


SPEC = [
    ("17.6", 2.28, 17.6), ("13.0", 2.28, 13.0), ("10.9", 2.28, 10.9),
    ("6.9", 2.28, 6.9), ("5.2", 2.28, 5.2),
    ("miss", MISS, 6.9), ("crash", CRASH, 1.7),
]  # fmt: skip
TABLE = [
    ("14.5", 2.276, 14.5), ("7.5", 2.277, 7.5), ("5.8", 2.267, 5.8),
    ("2.4", 2.282, 2.4), ("1.4", 2.2855, 1.4),
    ("miss", 2.368, 7.6), ("crash", CRASH, 1.7),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["crossing", "time-saved"])
@pytest.mark.parametrize("attempts", [SPEC, TABLE])
def test_order_at_the_true_rate(attempts, kind):
    names = ordered(attempts, kind)
    crossers = [name for name, *_ in attempts if name not in ("miss", "crash")]
    assert names[:5] == sorted(crossers, key=float)
    assert set(names[5:]) == {"miss", "crash"}


def test_a_narrow_miss_is_below_every_crosser():
    attempts = [("slow", 2.2999, 30.0), ("narrow", 2.3001, 1.0)]
    assert ordered(attempts) == ["slow", "narrow"]


def test_soft_crossing():
    half = earned("crossing", CROSSING, 2.30, 5.0)
    assert half == (0.5, 0.5)
    narrow = earned("crossing", CROSSING, 2.32, 5.0)
    assert narrow.reward == pytest.approx(0.5 * math.erfc(1 / math.sqrt(2)))
    assert narrow.value == 0.0
    sure = earned("crossing", CROSSING, 2.20, 5.0)
    assert sure.reward == pytest.approx(1.1, abs=1e-5)
    hard = dataclasses.replace(CROSSING, sigma=0.0)
    assert earned("crossing", hard, 2.30, 5.0).reward == 1.0
    assert earned("crossing", hard, 2.31, 5.0).reward == 0.0


def test_time_saved():
    assert earned("time-saved", CROSSING, 2.2, 9.0).value == pytest.approx(0.8)
    assert earned("time-saved", CROSSING, 2.4, 9.0) == (0.0, 0.0)
    assert earned("time-saved", CROSSING, 2.2, 90.0).value == 0.0


def test_published_rewards():
    paper = Crossing(target=3.28, sigma=0.0, cap_s=1500.0)
    assert earned("paper-crossing", paper, 3.27, 200.0).reward == pytest.approx(12.73)
    assert earned("paper-crossing", paper, 3.30, 200.0).reward == pytest.approx(6.70)
    assert earned("paper-crossing", paper, None, 9.0) == (-10.0, 0.0)
    kind = "paper-crossing-vanilla"
    assert earned(kind, paper, 3.27, 200.0).reward == pytest.approx(0.0, abs=1e-6)
    assert earned(kind, paper, 3.20, 200.0).reward == pytest.approx(400.0)
    assert earned(kind, paper, 3.30, 200.0).reward == pytest.approx(-1900.0)
    assert earned(kind, paper, None, 9.0).reward == -3000.0
    assert earned(kind, paper, 11.0, 9.0).value == 0.0


@pytest.mark.parametrize(("clock", "saved"), [("cpu", 0.9), ("wall", 0.8)])
def test_seconds_are_the_clock_s(clock, saved):
    rule = RewardRule(kind="time-saved", script_clock=clock)
    scoring = CrossingScoring(helper.SPEEDRUN, rule, crossing=CROSSING)
    fields = {"loss": 2.2, "cpu_s": 4.5, "execution_s": 9.0}
    assert scoring.reward(4.5, None, fields) == pytest.approx((saved, saved))
    assert scoring.reward(None, None, {}) == (0.0, 0.0)


def test_numbers_that_are_none():
    with pytest.raises(ValueError, match="sigma"):
        Crossing(target=2.3, sigma=math.nan, cap_s=1.0)
    with pytest.raises(ValueError, match="cap_s"):
        Crossing(target=2.3, sigma=0.1, cap_s=0.0)
