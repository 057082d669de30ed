"""Restricted recipes: what was not kept is never drawn, what is not there is named."""

import itertools

import numpy as np
import pytest

from experiments.menus import MenuError, draw, keep_parts, programs, recipes
from experiments.menus import restrict as module
from experiments.menus.recipe import Option, Recipe

TASK = "tabular-2022"


@pytest.fixture(autouse=True)
def _whole_afterwards(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", {})


def _names(slot, count=2):
    recipe = next(r for r in recipes(TASK) if r.name == "model")
    plain = [option for option in recipe.slots[slot] if not option.twin]
    return [option.name for option in plain[:count]]


def test_only_what_is_kept_is_drawn():
    before = recipes(TASK)
    models, rows = _names("model"), _names("rows", 1)
    keep_parts(TASK, {"model": models, "rows": rows})
    (recipe,) = recipes(TASK)
    assert [o.name for o in recipe.slots["model"]] == models
    assert recipe.slots["check"] == before[0].slots["check"]  # not named: whole
    rng = np.random.default_rng(0)
    drawn = [draw(TASK, rng) for _ in range(60)]
    assert {one.choices["model"].option for one in drawn} == set(models)
    assert {one.choices["rows"].option for one in drawn} == set(rows)
    assert recipes("spooky-author")  # others are as they were


def test_programs_are_counted():
    def option(name, **domains):
        return Option(name, "", domains)

    slots = {
        "a": (option("x", p=("1", "2"), q=("1", "2", "3")), option("y")),
        "b": (option("z", p=("1", "2")),),
    }
    recipe = Recipe("model", slots, {}, 1.0)
    assert programs(recipe) == (2 * 3 + 1) * 2
    keep = {"a": {"x": {"q": ("1", "3")}}}
    module._KEPT["t"] = (keep, ("model",))
    (left,) = module.restricted("t", (recipe,))
    assert programs(left) == 2 * 2 * 2
    values = itertools.chain(*(o.domains["q"] for o in left.slots["a"]))
    assert list(values) == ["1", "3"]


def _twin():
    recipe = next(r for r in recipes(TASK) if r.name == "model")
    return next(
        (slot, option)
        for slot, options in recipe.slots.items()
        for option in options
        if option.twin
    )


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({"colour": ["red"]}, "no slot colour"),
        ({"model": ["oracle"]}, "no option of model oracle"),
        ({"model": []}, "no option of model is kept"),
    ],
)
def test_what_is_not_there_is_named(kept, words):
    keep_parts(TASK, kept)
    with pytest.raises(MenuError, match=f"{TASK}: keep_parts: {words}"):
        recipes(TASK)


def test_a_wasteful_option_needs_its_plain_twin():
    slot, option = _twin()
    keep_parts(TASK, {slot: [option.name]})
    with pytest.raises(MenuError, match=f"no plain twin of {slot}"):
        recipes(TASK)
    module._KEPT.clear()
    keep_parts(TASK, {slot: [option.name, option.twin]})
    assert len(recipes(TASK)[0].slots[slot]) == 2
