"""What the report says in cases that its stand-in runs do not show."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from experiments.reporting import contests, facts, headline, medals, unfinished
from experiments.reporting.contests import Contest
from experiments.reporting.intervals import Interval
from rpg_tasks import get_task


def _contest(first, second, count=3):
    rates = tuple(Interval(rate, rate, rate) for rate in (first, second))
    difference = Interval(*[first - second] * 3)
    task = get_task("whale")
    return Contest(task, "rpg", "vanilla", rates, difference, "seeds", count)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ((0.2, 0.1), "+100.0% on whale"),
        ((0.2, 0.0), "the other earned nothing"),
        ((0.0, 0.0), "neither earned anything"),
        ((-0.1, -0.2), "no ratio: rates below 0"),
    ],
)
def test_one_rate_over_the_other(rates, words):
    assert headline._percents([_contest(*rates)]) == words


@pytest.mark.parametrize("split", ["test", "validation"])
def test_training_on_the_test_split_is_said(split):
    config = {"protocol": {"name": "sound", "reward_split": split}}
    experiment = SimpleNamespace(headers=[{"config": config}, {}], runs=[])
    assert facts.trained_on_test(experiment) == (split == "test")


def _final(of, chain, best):
    return {
        "run_id": f"{of}-final", "of": of, "chain": chain, "best": best,
        "validation_score": 0.7, "status": "valid",
    }  # fmt: skip


def test_one_test_score_a_run_or_a_chain():
    def of(*records):
        return [r["of"] for r in medals.latest(SimpleNamespace(final=list(records)))]

    assert of() == []
    assert of(_final("a", 3, True), _final("b", 5, True)) == ["b"]  # a longer run
    assert of(_final("a", 3, True), _final("b", 5, False)) == ["a", "b"]
    longer = (_final("a", 3, True), _final("b", 5, False), _final("c", 3, True))
    assert of(*longer) == ["c", "b"]


def test_a_stand_in_takes_the_place_of_a_best_script_that_failed():
    best = _final("a", 3, True) | {"status": "failed", "fallbacks": ["b", "c"]}
    second = _final("b", 5, False) | {"status": "failed", "instead_of": "a"}
    third = _final("c", 1, False) | {"instead_of": "a"}

    def of(*records):
        return [r["of"] for r in medals.latest(SimpleNamespace(final=list(records)))]

    assert of(best) == of(best, second) == ["a"]
    assert of(best, second, third) == ["c"]
    # Of chains, each has its own; a stand-in is none of them.
    assert set(of(best, _final("d", 1, False), third)) == {"a", "d"}


@pytest.mark.parametrize(
    ("status", "final", "said"),
    [
        ("running", [], True),
        ("failed", [], True),
        ("done", [], False),  # a run that was to have no private test
        ("running", [_final("a", 3, True)], False),
    ],
)
def test_a_private_test_to_come_is_said(tmp_path, status, final, said):
    folder = tmp_path / "whale" / "rpg" / "seed-0"
    folder.mkdir(parents=True)
    (tmp_path / "whale" / "task.json").write_text(json.dumps({"status": status}))
    attempts = SimpleNamespace(left_out=0)
    run = SimpleNamespace(
        folder=folder, name="whale/rpg/seed-0", progress=1.02, attempts=attempts,
        steps=4, final=final, metrics={"best_score": [0.7]},
    )  # fmt: skip
    line = unfinished.stopped(run)
    assert (line or "").endswith("private test yet") == said
    if status == "running" and final:  # it went on from 0.7 and has found 0.8
        assert line is None
        run.metrics["best_score"].append(0.8)
        assert unfinished.stopped(run).endswith("is of an earlier best script")


@pytest.mark.parametrize(
    ("arms", "pair"),
    [
        (("search-only", "vanilla", "rpg"), ("rpg", "vanilla")),
        (("search-only", "rpg"), ("rpg", "search-only")),
        (("vanilla", "ratio"), ("ratio", "vanilla")),
        (("ratio", "search-only", "fixed-price"), ("search-only", "fixed-price")),
        (("rpg",), None),
    ],
)
def test_who_is_compared_does_not_depend_on_what_came_out(arms, pair):
    experiment = SimpleNamespace(arms=lambda task: list(arms))
    assert contests.rivals(experiment, get_task("whale")) == pair


def test_a_headline_of_unlike_pairs_says_how_many_it_leaves_out():
    found = [
        dataclasses.replace(_contest(0.2, 0.1), second=second)
        for second in ("vanilla", "search-only", "vanilla", "vanilla", "vanilla")
    ]
    experiment = SimpleNamespace(arms=lambda task: [])
    text = headline.headline(experiment, found)
    assert text.count("earned more per second") == 3
    assert "has 2 more tasks" in text
