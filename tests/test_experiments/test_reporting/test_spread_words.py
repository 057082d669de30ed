"""What the spread says: first lines, predictions; CSV files of other agents."""

import math

import numpy as np
import pytest

from experiments.reporting import spread, spread_words
from experiments.reporting.runs import ReportError
from experiments.reporting.spread_csv import Columns, read_spreads
from rpg_jax import Spread, score_free_spread, wasted_share


def one(low, high, *, task="whale", arm="independent", needed=0):
    middle = math.nan if needed else (low + high) / 2
    found = Spread(middle, low, high, np.ones(5), 9.0, 0.1, 50, needed)
    return spread.TaskSpread(task, arm, found, 60, 0.9)


FEW = one(math.nan, math.nan, task="new", needed=12)


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (one(1.5, 3.5), spread.BELOW, "W = 2.5 [1.5, 3.5]"),
        (one(6.0, 10.0), spread.ABOVE, "settled: the interval is above 5"),
        (one(4.0, 6.0), spread.OPEN, "not settled: the interval includes 5"),
        (one(2.0, 4.97), spread.OPEN, "[2.0, 5.0]"),  # as it is shown
        (FEW, spread.FEW, "no verdict: 50 valid attempts are too few, W needs about "
                          "12 more"),
    ],
)  # fmt: skip
def test_the_first_line_of_one_task(found, state, words):
    assert found.state == state
    assert words in spread_words.headline([found])


def test_the_first_line_of_several():
    found = [one(1.5, 3.5), one(4.0, 6.0, task="insults"), FEW]
    text = spread_words.headline(found)
    assert (
        "of 3 tasks: settled below 5 on 1 (whale); not settled on 1 (insults)" in text
    )
    assert "up to 12 more" in text
    other = spread_words.headline([one(1, 2), one(1, 2, arm="rpg")])
    assert "whale (independent), whale (rpg)" in other


def test_what_is_predicted_is_called_a_prediction():
    below = spread_words.prediction([one(1.5, 3.5)])
    assert "loses best score where the score is the reward (W below 5)" in below
    assert "wins best score" in spread_words.prediction([one(6, 9)])
    mixed = spread_words.prediction([one(1, 2), one(6, 9)])
    assert "loses best score where W is below about 5 and wins above" in mixed
    for text in (below, mixed):
        assert text.startswith("A simulation predicts")
        assert text.endswith("It is a prediction, not a result.")
    assert spread_words.prediction([FEW]) == ""


def test_the_line_of_a_report():
    assert spread_words.line([]) == ""
    assert "at least 12 more" in spread_words.line([FEW])
    few = spread_words.line([one(1.5, 3.5), FEW])
    assert "W = 2.5 [1.5, 3.5] on whale. Too few attempts on 1 more." in few
    many = [one(1 + k, 2 + k, task=f"t{k}") for k in range(6)]
    text = spread_words.line(many)
    assert "W = 1.5 to 6.5 on 6 tasks (95% intervals within [1.0, 7.0])" in text
    assert len(text) < 300


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random(count).round(3), np.exp(rng.standard_normal(count)).round(3)


def table(score, seconds, head="score,seconds"):
    return "\n".join([head, *(f"{a},{b}" for a, b in zip(score, seconds, strict=True))])


def test_a_file_of_attempts(tmp_path):
    score, seconds = rows(60)
    path = write(tmp_path / "mine.csv", table(score, seconds) + "\n,\nnan,2.5\n")
    (found,) = read_spreads(path, lower_is_better=True)
    assert (found.task, found.attempts) == ("mine", 62)
    expected = score_free_spread(-score, seconds)
    assert found.measured[:3] == expected[:3]
    values = np.append(-score, [np.nan, np.nan])
    wasted = wasted_share(values, np.append(seconds, [0.0, 2.5]))
    assert found.wasted == pytest.approx(wasted)


def test_groups_and_names_of_columns(tmp_path):
    a, b = rows(45), rows(20, seed=1)
    lines = ["t,kind,auc"]
    lines += [f"{s},x,{v}" for v, s in zip(*a, strict=True)]
    lines += [f"{s},y,{v}" for v, s in zip(*b, strict=True)]
    path = write(tmp_path / "a.csv", "\ufeff" + "\n".join(lines))
    found = read_spreads(path, Columns("t", "auc", "kind"))
    assert [(one.task, one.measured.needed) for one in found] == [("x", 0), ("y", 20)]
    assert found[0].measured.spread == score_free_spread(*a).spread
    lines[0] = "seconds,task,score"  # a column of that name is used unasked
    again = read_spreads(write(tmp_path / "b.csv", "\n".join(lines)))
    assert again[0].measured[:3] == found[0].measured[:3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column 'seconds' (it has no columns): name it with"),
        ("time,score\n1,2\n", "(it has time, score): name it with --seconds_column"),
        ("seconds,auc\n1,2\n", "no column 'score'"),
        ("seconds,score\n1,0.1\nx,0.2\n", "line 3: seconds is 'x', not a number"),
        ("seconds,score\n1,high\n", "line 2: score is 'high', not a number"),
        ("seconds,score\n1,inf\n", "not a number"),
        ("seconds,score\n-1,0.1\n", "line 2: seconds is -1: it must be above 0"),
        ("seconds,score\n-1,\n", "must be above 0"),
        ("seconds,score\n0,0.1\n", "must be above 0"),
        ("seconds,score\n,0.1\n", "line 2: seconds is '', not a number"),
        ("seconds,score\n1\n1,2\n", "has 1 attempts with a score: W needs at least 40"),
        ("seconds,score\n", "has 0 attempts with a score"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(ReportError) as caught:
        read_spreads(write(tmp_path / "a.csv", text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ReportError, match="cannot read"):
        read_spreads(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"seconds,score\n\xff\xfe,1\n")
    with pytest.raises(ReportError, match="no CSV file in UTF-8"):
        read_spreads(tmp_path / "bytes.csv")
    with pytest.raises(ReportError, match="--group_column"):
        read_spreads(write(tmp_path / "a.csv", "seconds,score\n1,1\n"),
                     Columns(group="kind"))  # fmt: skip
