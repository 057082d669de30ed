"""The last table of a run: what it says of real and of synthetic data."""

import io

import pytest
from rich.console import Console

from experiments.console.screen import Screen

ROW = {
    "task": "insults", "arm": "rpg", "steps": 3, "valid_share": 0.75,
    "mean_reward": 0.5, "mean_delta_s": 2.0, "sum_delta_s": 48.0, "reward_rate": 0.25,
    "best_validation_score": 0.93, "test_score": 0.92, "medal": "gold",
    "sample_s": 1.0, "execute_s": 2.0, "grade_s": 0.0, "update_s": 1.0, "other_s": 0.0,
}  # fmt: skip


def shown(*rows, width=118):
    out = io.StringIO()
    Screen(Console(file=out, width=width)).results(rows)
    return out.getvalue()


@pytest.mark.parametrize("data", ["synthetic-small", "synthetic-full"])
def test_synthetic_scores_win_no_medals(data):
    text = shown({**ROW, "data": data})
    assert "gold" not in text
    assert "medals" not in text
    assert "insults ↑" in text
    assert "0.25" in text


def test_real_scores_do():
    synthetic = {**ROW, "data": "synthetic-small", "task": "pizza", "medal": "silver"}
    text = shown({**ROW, "data": "mlebench"}, synthetic)
    assert "medals" in text
    assert "gold" in text
    assert "silver" not in text


def test_every_column_is_explained():
    text = " ".join(shown({**ROW, "data": "synthetic-small"}).split())
    for name in ("n:", "valid:", "reward, δ s:", "reward/s:", "best val.:", "test:"):
        assert name in text


def test_no_number_is_cut_on_a_terminal_of_eighty_columns():
    row = {**ROW, "task": "spooky-author", "arm": "duration-weighted"}
    row |= {"data": "synthetic-small", "test_score": 0.40232, "steps": 12.7}
    text = shown(row, width=80)
    assert "0.40232" in text
    assert "duration" in text
    assert "…" not in text
