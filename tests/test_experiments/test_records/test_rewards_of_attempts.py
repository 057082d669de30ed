"""Rewards and charges of attempts, and the traps that they avoid."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.reward_rule import FAILURE_CHARGES, PAPER_RULE, RewardRule
from experiments.records import rewards
from rpg_tasks import TaskError, get_task, load_tasks

ALL = pytest.mark.parametrize("task", load_tasks().values(), ids=lambda t: t.short)

# The paper's example scripts on spooky-author: log loss and seconds.
FAST, SLOW = (0.469, 5.0), (0.727, 13.0)
PRIOR_LOSS = 1.0789  # log loss (nats) of the class frequencies 0.4035, 0.2878, 0.3087


def test_trap_with_a_negative_loss_as_reward_the_worse_and_slower_script_wins():
    task = get_task("spooky-author")
    losses = np.array([FAST[0], SLOW[0]])
    seconds = np.array([FAST[1], SLOW[1]])
    rule = RewardRule(kind="raw")
    reward = np.array([rewards.attempt_reward(rule, task, loss) for loss in losses])
    np.testing.assert_array_equal(reward, -losses)
    rate = reward.sum() / seconds.sum()
    assert rate < 0  # time is paid for
    relative = reward - rate * seconds
    assert relative[0] < relative[1]


def test_the_papers_reward_needs_a_leaderboard_for_losses():
    rule = PAPER_RULE
    taxi, pizza = get_task("nyc-taxi"), get_task("pizza")
    with pytest.raises(TaskError, match=r"leaderboard\.csv"):
        rewards.attempt_reward(rule, taxi, 3.0)
    board = np.array([2.0, 3.0, 4.0, 5.0])
    assert rewards.attempt_reward(rule, taxi, 3.0, leaderboard=board) == 0.625 + 0.5
    assert rewards.attempt_reward(rule, taxi, 3.0, leaderboard=board, best=0.7) == 0.625
    assert rewards.attempt_reward(rule, pizza, 0.8, best=0.7) == pytest.approx(1.3)
    assert rewards.attempt_reward(rule, pizza, 0.7, best=0.7) == pytest.approx(0.7)
    assert rewards.attempt_reward(rule, pizza, None) == -10.0


def test_gain_rewards_need_a_baseline_and_failures_never_pay():
    task = get_task("pizza")
    with pytest.raises(TaskError, match="sample submission"):
        rewards.attempt_reward(RewardRule(), task, 0.9)
    assert rewards.attempt_reward(RewardRule(), task, 0.75, baseline=0.5) == 0.5
    assert rewards.attempt_reward(RewardRule(), task, None) == 0.0
    rule = RewardRule(failure_penalty=0.25)
    assert rewards.attempt_reward(rule, task, None) == -0.25


@given(
    rate=st.floats(0.0, 5.0),
    seconds=st.lists(st.floats(0.1, 600.0), min_size=2, max_size=8),
    data=st.data(),
)
def test_a_failure_never_outranks_a_valid_script(rate, seconds, data):
    size = len(seconds)
    valid = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    valid, seconds = np.array(valid), np.array(seconds)
    gains = np.where(valid, data.draw(st.floats(0.0, 1.0)), 0.0)
    charged = rewards.charged_seconds(RewardRule(), seconds, valid, 600.0)
    relative = gains - rate * charged
    assert (charged >= seconds).all()
    np.testing.assert_array_equal(charged[valid], seconds[valid])
    if valid.any() and not valid.all():
        assert relative[~valid].max() <= relative[valid].min() + 1e-12


def test_trap_with_measured_charges_an_instant_crash_outranks_valid_scripts():
    seconds, valid = np.array([0.1, 60.0]), np.array([False, True])
    gains, rate = np.array([0.0, 0.3]), 0.02
    measured = RewardRule(failure_charge="measured")
    relative = gains - rate * rewards.charged_seconds(measured, seconds, valid, 600.0)
    assert relative[0] > relative[1]


def test_failure_charges_and_clocks():
    seconds, valid = np.array([1.0, 7.0, 20.0]), np.array([True, True, False])
    for charge, last in (("measured", 20.0), ("slowest", 20.0), ("limit", 600.0)):
        rule = RewardRule(failure_charge=charge)
        np.testing.assert_array_equal(
            rewards.charged_seconds(rule, seconds, valid, 600.0), [1.0, 7.0, last]
        )
    nothing = np.zeros(3, bool)
    np.testing.assert_array_equal(
        rewards.charged_seconds(RewardRule(), seconds, nothing, 600.0), seconds
    )
    with pytest.raises(ValueError, match="shapes"):
        rewards.charged_seconds(RewardRule(), seconds, valid[:2], 600.0)
    assert rewards.attempt_seconds(RewardRule(), 2.0, 3.0) == 5.0
    assert rewards.attempt_seconds(RewardRule(clock="execution"), 2.0, 3.0) == 2.0
    assert rewards.attempt_seconds(RewardRule(clock="execution"), 0.01) == 0.1
    with pytest.raises(ValueError, match="finite"):
        rewards.attempt_seconds(RewardRule(), np.nan)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "auc"},
        {"failure_charge": "none"},
        {"clock": "cpu"},
        {"failure_penalty": -1.0},
        {"failure_penalty": np.nan},
    ],
)
def test_wrong_rules_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        RewardRule(**wrong)


def test_float64_charges_agree_with_those_under_jit():
    import jax.numpy as jnp

    from rpg_jax import rewards as jax_rewards

    seconds = np.array([1.0, 7.0, 0.5, 20.0], np.float32)
    valid = np.array([True, True, False, False])
    for charge in FAILURE_CHARGES:
        got = rewards.charged_seconds(
            RewardRule(failure_charge=charge), seconds, valid, 600.0
        )
        want = jax_rewards.charged_duration(
            jnp.asarray(seconds), jnp.asarray(~valid), charge=charge, limit=600.0
        )
        np.testing.assert_allclose(got, want, rtol=1e-6)
