"""How adapters call a user's function: whose seconds, gaps, one answer at a time."""

import asyncio
import math
import pickle
import time

import numpy as np
import pytest

from rpg_jax.adapters import RewardRateServer, calls, trl, tunix, verl

ROWS = {"prompts": ["p", "q"], "completions": ["a", "b"], "other": 3}


def plain(prompts, completions, **columns):
    time.sleep(0.02 * (completions[0] == "b"))
    return [1.0 for _ in completions]


async def plain_async(**columns):
    return plain(**columns)


def test_rows_are_timed_where_no_seconds_are_given():
    for rows in (
        calls.call(plain, ROWS),
        asyncio.run(calls.call_async(plain_async, ROWS)),
    ):
        np.testing.assert_array_equal(rows["reward"], [1.0, 1.0])
        assert rows["duration"][0] < 0.02 <= rows["duration"][1] < 2
        assert rows["mask"].all()


class Room:
    def __init__(self, seconds):
        self.seconds = seconds


@pytest.mark.parametrize(
    ("more", "seconds", "want"),
    [
        ({"seconds": [3.0, 4.0]}, None, [3.0, 4.0]),
        ({"seconds": [3.0, 4.0], "tool": [5.0, 6.0]}, "tool", [5.0, 6.0]),
        ({"environments": [Room(7.0), Room(8.0)]}, None, [7.0, 8.0]),
        ({}, lambda completions, **_: [1.0 for _ in completions], [1.0, 1.0]),
        ({"seconds": [0.0, None]}, None, [1e-9, None]),
    ],
)
def test_seconds_that_are_known_are_taken(more, seconds, want):
    rows = calls.call(plain, ROWS | more, seconds=seconds)
    known = [w is not None for w in want]
    np.testing.assert_array_equal(rows["mask"], known)
    got = rows["duration"][known]
    np.testing.assert_array_equal(got, [w for w in want if w is not None])


def test_seconds_of_the_function_come_first():
    rows = calls.call(lambda **_: ([1.0, 2.0], [5.0, 6.0]), ROWS | {"seconds": [1, 1]})
    np.testing.assert_array_equal(rows["duration"], [5.0, 6.0])
    with pytest.raises(ValueError, match="no column 'tool'"):
        calls.call(plain, ROWS, seconds="tool")
    with pytest.raises(ValueError, match="1 rewards for 2"):
        calls.call(lambda **_: [1.0], ROWS | {"seconds": [1.0, 1.0]})


def test_gaps_are_not_charged():
    reward = trl.price(lambda **_: [0.5, None, math.nan, 0.1], initial_rate=0.1)
    got = reward(prompts="pppp", completions=list("abcd"), seconds=[1, 1, 1, None])
    assert got[1:] == [None] * 3
    np.testing.assert_allclose(got[0], 0.4)
    np.testing.assert_allclose(reward.relative.rate, 0.5)


def test_a_function_with_a_server_pickles():
    server = RewardRateServer()
    with server.serve() as service:
        priced = trl.price(plain, server=service.client(), seconds="s")
        again = pickle.loads(pickle.dumps(priced))
        for number, function in enumerate((priced, again)):
            got = function(prompts=["p"], completions=["a"], s=[4.0])
            assert got == [0.0]  # each at its own rate, the first step's among them
            assert server.counts()["rows"] == number + 1


def score(data_source, solution_str, ground_truth, extra_info):
    return {"score": 1.0, "seconds": float(len(solution_str)), "turns": 2}


async def score_async(**row):
    return score(**row)


def answer(text, **extra):
    return {
        "data_source": "d",
        "solution_str": text,
        "ground_truth": None,
        "extra_info": extra,
    }


def test_verl_calls_answer_by_answer():
    def settings():
        return {"rows_per_step": 2, "initial_rate": 0.25}

    compute = verl.score_function(score, **settings())
    later = verl.score_function(score_async, **settings())
    assert asyncio.iscoroutinefunction(later)
    assert not asyncio.iscoroutinefunction(compute)
    texts = ["aa", "bbbb", "cc"]
    got = [compute(**answer(text)) for text in texts]
    assert got == [asyncio.run(later(**answer(text))) for text in texts]
    rate = 2.0 / 6.0
    assert [g["score"] for g in got] == [0.5, 0.0, 1.0 - rate * 2.0]
    assert got[0] == {
        "acc": 1.0, "turns": 2, "score": 0.5, "rpg_reward": 1.0, "rpg_seconds": 2.0,
        "rpg_rate": 0.25,
    }  # fmt: skip
    # An answer of a validation set is priced and forgotten.
    for _ in range(4):
        assert compute(**answer("eeee", split="test"))["rpg_rate"] == rate
    assert compute(**answer("dd", split="train"))["rpg_rate"] == rate
    assert compute(**answer("dd"))["rpg_rate"] != rate


def test_verl_measures_and_skips():
    timed = verl.score_function(lambda **_: time.sleep(0.01) or 1.0, initial_rate=1.0)
    got = timed(**answer("a"))
    assert 0.01 <= got["rpg_seconds"] < 1
    assert got["score"] == 1.0 - got["rpg_seconds"]
    for nothing in (None, math.nan, (1.0, None)):
        empty = verl.score_function(lambda nothing=nothing, **_: nothing)
        assert empty(**answer("a"))["score"] == 0.0


def test_tunix_says_when_it_evaluates():
    reward = tunix.price(plain, seconds="s", initial_rate=0.5)
    for mode in ("eval", "Mode.EVAL"):
        got = reward(prompts=["p"], completions=["a"], s=[1.0], mode=mode)
        np.testing.assert_array_equal(got, [0.5])
    assert reward.relative.rate == 0.5
    reward(prompts=["p"], completions=["a"], s=[1.0], mode="train")
    assert reward.relative.rate == 1.0
