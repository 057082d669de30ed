"""Gain, percentile, medals; orientation checked on all 22 tasks."""

import numpy as np
import pytest
from grader_cases import content
from hypothesis import given
from hypothesis import strategies as st

from rpg_tasks import TaskError, get_task, load_tasks, scores
from rpg_tasks.grading import sample_frame
from rpg_tasks.submission import parse_csv

ALL = pytest.mark.parametrize("task", load_tasks().values(), ids=lambda t: t.short)

# The paper's example scripts on spooky-author: log loss and seconds.
FAST, SLOW = (0.469, 5.0), (0.727, 13.0)
PRIOR_LOSS = 1.0789  # log loss (nats) of the class frequencies 0.4035, 0.2878, 0.3087


def test_the_papers_two_scripts_are_ordered_by_the_default_reward():
    task = get_task("spooky-author")
    gains = np.array([scores.gain(task, loss, PRIOR_LOSS) for loss, _ in (FAST, SLOW)])
    seconds = np.array([FAST[1], SLOW[1]])
    own_rate = gains.sum() / seconds.sum()
    for rate in (0.0, own_rate, 10 * own_rate):
        relative = gains - rate * seconds
        assert relative[0] > relative[1]


@ALL
def test_gain_is_zero_for_the_sample_and_one_for_perfection(task):
    baseline = 0.5 if task.higher_is_better else 1.3
    assert scores.gain(task, baseline, baseline) == 0.0
    assert scores.gain(task, task.perfect_score, baseline) == 1.0
    worse = baseline - 0.2 if task.higher_is_better else baseline + 0.2
    assert scores.gain(task, worse, baseline) == 0.0
    assert scores.gain(task, task.perfect_score, task.perfect_score) == 0.0


@ALL
@given(
    baseline=st.floats(0.001, 0.999),
    values=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5),
)
def test_a_better_score_never_has_a_lower_gain(task, baseline, values):
    ordered = sorted(values, reverse=not task.higher_is_better)  # worst first
    gains = [scores.gain(task, score, baseline) for score in ordered]
    assert gains == sorted(gains)
    assert all(0.0 <= g <= 1.0 for g in gains)
    better = [scores.oriented(task, score) for score in ordered]
    assert better == sorted(better)


def test_gain_refuses_what_is_not_a_number():
    task = get_task("pizza")
    for score, baseline in ((np.nan, 0.5), (0.5, np.inf), (-np.inf, 0.5)):
        with pytest.raises(ValueError, match="finite"):
            scores.gain(task, score, baseline)


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
    assert scores.gain(task, score, score) == 0.0


def test_percentile_counts_ties_half_and_follows_the_orientation():
    board = np.array([0.1, 0.2, 0.2, 0.4])
    low, high = get_task("nyc-taxi"), get_task("pizza")
    assert scores.percentile(low, 0.2, board) == pytest.approx((1 + 0.5 * 2) / 4)
    assert scores.percentile(low, 0.05, board) == 1.0
    assert scores.percentile(low, 0.5, board) == 0.0
    assert scores.percentile(high, 0.5, board) == 1.0
    with pytest.raises(ValueError, match="leaderboard"):
        scores.percentile(low, 0.2, np.array([]))


def test_leaderboard_files(tmp_path):
    path = tmp_path / "leaderboard.csv"
    with pytest.raises(TaskError, match="no leaderboard"):
        scores.load_leaderboard(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(TaskError, match="git lfs pull"):
        scores.load_leaderboard(path)
    for text in ("team,points\na,1\n", "teamId,score\n", "teamId,score\n1,x\n", ""):
        path.write_text(text)
        with pytest.raises(TaskError, match="score"):
            scores.load_leaderboard(path)
    path.write_text("teamId,score\n1,0.5\n2,\n3,0.25\n")
    np.testing.assert_array_equal(scores.load_leaderboard(path), [0.5, 0.25])


@ALL
def test_medals_follow_the_orientation(task):
    medals = task.medals
    assert scores.medal(task, task.perfect_score) == "gold"
    assert scores.medal(task, medals.gold) == "gold"
    if medals.gold != medals.silver:
        assert scores.medal(task, medals.silver) == "silver"
    if medals.silver != medals.bronze:
        assert scores.medal(task, medals.bronze) == "bronze"
    step = -0.001 if task.higher_is_better else 0.001
    assert scores.medal(task, medals.median + 10 * step) is None
    assert scores.above_median(task, medals.median)
    assert not scores.above_median(task, medals.median + step)


def test_medals_compare_the_score_that_mle_bench_reports():
    # It rounds to five digits first: 0.999996 is a gold 1.0 on aerial-cactus.
    task = get_task("aerial-cactus")
    assert scores.medal(task, 0.999996) == "gold"
    assert scores.medal(task, 0.99999) is None
