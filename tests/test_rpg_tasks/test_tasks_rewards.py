"""Gain, the paper's reward, charges, medals; orientation checked on all 22 tasks."""

import numpy as np
import pytest
from grader_cases import content
from hypothesis import given
from hypothesis import strategies as st

from rpg_tasks import RewardRule, TaskError, get_task, load_tasks
from rpg_tasks import rewards as rw
from rpg_tasks.grading import sample_frame
from rpg_tasks.submission import parse_csv

ALL = pytest.mark.parametrize("task", load_tasks().values(), ids=lambda t: t.short)

# The paper's example scripts on spooky-author: log loss and seconds.
FAST, SLOW = (0.469, 5.0), (0.727, 13.0)
PRIOR_LOSS = 1.0789  # log loss (nats) of the class frequencies 0.4035, 0.2878, 0.3087


def test_the_papers_two_scripts_are_ordered_by_the_default_reward():
    task = get_task("spooky-author")
    gains = np.array([rw.gain(task, loss, PRIOR_LOSS) for loss, _ in (FAST, SLOW)])
    seconds = np.array([FAST[1], SLOW[1]])
    own_rate = gains.sum() / seconds.sum()
    for rate in (0.0, own_rate, 10 * own_rate):
        relative = gains - rate * seconds
        assert relative[0] > relative[1]


def test_trap_with_a_negative_loss_as_reward_the_worse_and_slower_script_wins():
    task = get_task("spooky-author")
    losses = np.array([FAST[0], SLOW[0]])
    seconds = np.array([FAST[1], SLOW[1]])
    rule = RewardRule(kind="raw")
    reward = np.array([rw.attempt_reward(rule, task, loss) for loss in losses])
    np.testing.assert_array_equal(reward, -losses)
    rate = reward.sum() / seconds.sum()
    assert rate < 0  # time is paid for
    relative = reward - rate * seconds
    assert relative[0] < relative[1]


@ALL
def test_gain_is_zero_for_the_sample_and_one_for_perfection(task):
    baseline = 0.5 if task.higher_is_better else 1.3
    assert rw.gain(task, baseline, baseline) == 0.0
    assert rw.gain(task, task.perfect_score, baseline) == 1.0
    worse = baseline - 0.2 if task.higher_is_better else baseline + 0.2
    assert rw.gain(task, worse, baseline) == 0.0
    assert rw.gain(task, task.perfect_score, task.perfect_score) == 0.0


@ALL
@given(
    baseline=st.floats(0.001, 0.999),
    scores=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5),
)
def test_a_better_score_never_has_a_lower_gain(task, baseline, scores):
    ordered = sorted(scores, reverse=not task.higher_is_better)  # worst first
    gains = [rw.gain(task, score, baseline) for score in ordered]
    assert gains == sorted(gains)
    assert all(0.0 <= g <= 1.0 for g in gains)
    better = [rw.oriented(task, score) for score in ordered]
    assert better == sorted(better)


def test_gain_refuses_what_is_not_a_number():
    task = get_task("pizza")
    for score, baseline in ((np.nan, 0.5), (0.5, np.inf), (-np.inf, 0.5)):
        with pytest.raises(ValueError, match="finite"):
            rw.gain(task, score, baseline)


@ALL
def test_the_sample_rebuilt_from_the_record_scores_as_the_sample(task):
    from rpg_tasks.graders import score_tables

    answers = parse_csv(content(task.short, "answers.csv"), "answers")
    frame = sample_frame(task, answers)
    if "copy" in task.sample.values():
        assert frame is None
        return
    expected = {"auc": 0.5, "auc_matrix": 0.5, "kappa": 0.0}
    score = score_tables(task, frame, answers)
    if task.metric in expected:
        assert score == pytest.approx(expected[task.metric], abs=1e-12)
    if task.sample.get("all") == "uniform":
        assert score == pytest.approx(np.log(len(frame.columns) - 1), abs=1e-9)
    assert rw.gain(task, score, score) == 0.0


def test_percentile_counts_ties_half_and_follows_the_orientation():
    board = np.array([0.1, 0.2, 0.2, 0.4])
    low, high = get_task("nyc-taxi"), get_task("pizza")
    assert rw.percentile(low, 0.2, board) == pytest.approx((1 + 0.5 * 2) / 4)
    assert rw.percentile(low, 0.05, board) == 1.0
    assert rw.percentile(low, 0.5, board) == 0.0
    assert rw.percentile(high, 0.5, board) == 1.0
    with pytest.raises(ValueError, match="leaderboard"):
        rw.percentile(low, 0.2, np.array([]))


def test_the_papers_reward_needs_a_leaderboard_for_losses():
    rule = rw.PAPER_RULE
    taxi, pizza = get_task("nyc-taxi"), get_task("pizza")
    with pytest.raises(TaskError, match=r"leaderboard\.csv"):
        rw.attempt_reward(rule, taxi, 3.0)
    board = np.array([2.0, 3.0, 4.0, 5.0])
    assert rw.attempt_reward(rule, taxi, 3.0, leaderboard=board) == 0.625 + 0.5
    assert rw.attempt_reward(rule, taxi, 3.0, leaderboard=board, best=0.7) == 0.625
    assert rw.attempt_reward(rule, pizza, 0.8, best=0.7) == pytest.approx(1.3)
    assert rw.attempt_reward(rule, pizza, 0.7, best=0.7) == pytest.approx(0.7)
    assert rw.attempt_reward(rule, pizza, None) == -10.0


def test_gain_rewards_need_a_baseline_and_failures_never_pay():
    task = get_task("pizza")
    with pytest.raises(TaskError, match="sample submission"):
        rw.attempt_reward(RewardRule(), task, 0.9)
    assert rw.attempt_reward(RewardRule(), task, 0.75, baseline=0.5) == 0.5
    assert rw.attempt_reward(RewardRule(), task, None) == 0.0
    rule = RewardRule(failure_penalty=0.25)
    assert rw.attempt_reward(rule, task, None) == -0.25


def test_leaderboard_files(tmp_path):
    path = tmp_path / "leaderboard.csv"
    with pytest.raises(TaskError, match="no leaderboard"):
        rw.load_leaderboard(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(TaskError, match="git lfs pull"):
        rw.load_leaderboard(path)
    for text in ("team,points\na,1\n", "teamId,score\n", "teamId,score\n1,x\n", ""):
        path.write_text(text)
        with pytest.raises(TaskError, match="score"):
            rw.load_leaderboard(path)
    path.write_text("teamId,score\n1,0.5\n2,\n3,0.25\n")
    np.testing.assert_array_equal(rw.load_leaderboard(path), [0.5, 0.25])


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
    charged = rw.charged_seconds(RewardRule(), seconds, valid, 600.0)
    relative = gains - rate * charged
    assert (charged >= seconds).all()
    np.testing.assert_array_equal(charged[valid], seconds[valid])
    if valid.any() and not valid.all():
        assert relative[~valid].max() <= relative[valid].min() + 1e-12


def test_trap_with_measured_charges_an_instant_crash_outranks_valid_scripts():
    seconds, valid = np.array([0.1, 60.0]), np.array([False, True])
    gains, rate = np.array([0.0, 0.3]), 0.02
    measured = RewardRule(failure_charge="measured")
    relative = gains - rate * rw.charged_seconds(measured, seconds, valid, 600.0)
    assert relative[0] > relative[1]


def test_failure_charges_and_clocks():
    seconds, valid = np.array([1.0, 7.0, 20.0]), np.array([True, True, False])
    for charge, last in (("measured", 20.0), ("slowest", 20.0), ("limit", 600.0)):
        rule = RewardRule(failure_charge=charge)
        np.testing.assert_array_equal(
            rw.charged_seconds(rule, seconds, valid, 600.0), [1.0, 7.0, last]
        )
    nothing = np.zeros(3, bool)
    np.testing.assert_array_equal(
        rw.charged_seconds(RewardRule(), seconds, nothing, 600.0), seconds
    )
    with pytest.raises(ValueError, match="shapes"):
        rw.charged_seconds(RewardRule(), seconds, valid[:2], 600.0)
    assert rw.attempt_seconds(RewardRule(), 2.0, 3.0) == 5.0
    assert rw.attempt_seconds(RewardRule(clock="execution"), 2.0, 3.0) == 2.0
    assert rw.attempt_seconds(RewardRule(clock="execution"), 0.01) == 0.1
    with pytest.raises(ValueError, match="finite"):
        rw.attempt_seconds(RewardRule(), np.nan)


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


@ALL
def test_medals_follow_the_orientation(task):
    medals = task.medals
    assert rw.medal(task, task.perfect_score) == "gold"
    assert rw.medal(task, medals.gold) == "gold"
    if medals.gold != medals.silver:
        assert rw.medal(task, medals.silver) == "silver"
    if medals.silver != medals.bronze:
        assert rw.medal(task, medals.bronze) == "bronze"
    step = -0.001 if task.higher_is_better else 0.001
    assert rw.medal(task, medals.median + 10 * step) is None
    assert rw.above_median(task, medals.median)
    assert not rw.above_median(task, medals.median + step)


def test_medals_compare_the_score_that_mle_bench_reports():
    # It rounds to five digits first: 0.999996 is a gold 1.0 on aerial-cactus.
    task = get_task("aerial-cactus")
    assert rw.medal(task, 0.999996) == "gold"
    assert rw.medal(task, 0.99999) is None


def test_float64_rewards_agree_with_the_jax_formulas():
    import jax.numpy as jnp

    from rpg_jax import rewards as jax_rewards

    scores = np.linspace(0.0, 1.4, 15, dtype=np.float32)
    for name in ("pizza", "nyc-taxi"):
        task = get_task(name)
        want = jax_rewards.gain(
            jnp.asarray(scores),
            0.7,
            task.perfect_score,
            higher_is_better=name[0] == "p",
        )
        # A probability metric ends at 1; past it the float64 gain stays at 1.
        got = [rw.gain(task, float(score), 0.7) for score in scores]
        np.testing.assert_allclose(got, np.minimum(want, 1.0), atol=2e-6)
    seconds = np.array([1.0, 7.0, 0.5, 20.0], np.float32)
    valid = np.array([True, True, False, False])
    for charge in rw.FAILURE_CHARGES:
        got = rw.charged_seconds(
            RewardRule(failure_charge=charge), seconds, valid, 600.0
        )
        want = jax_rewards.charged_duration(
            jnp.asarray(seconds), jnp.asarray(~valid), charge=charge, limit=600.0
        )
        np.testing.assert_allclose(got, want, rtol=1e-6)
