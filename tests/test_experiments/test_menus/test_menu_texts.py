"""Menus as texts: choices, lines, scripts and prompts, there and back."""

import dataclasses

import loop_help
import menu_help as helper
import numpy as np
import pytest
from synthetic_helpers import SHORTS

from experiments.menus import part_edits
from experiments.menus.menu import Menu, NotOfTheMenu, label
from experiments.menus.prompt import (
    describer,
    menu_prompt,
    shown_form,
    shown_parts,
    shown_place,
)
from experiments.menus.task_menu import draw, recipes
from rpg_tasks.prompts import Attempt, NoScript
from rpg_tasks.registry import TaskError

TASK = loop_help.TASK


@pytest.fixture(scope="module")
def menu():
    return helper.token_menu()


def test_every_choice_goes_to_text_and_script_and_back(menu):
    language, texts = menu.menu, set()
    for chosen in helper.every_choice():
        text = language.text(chosen)
        again = language.parse(text)
        assert again.script == chosen.script
        assert again.recipe is chosen.recipe
        script = language.script(chosen)
        assert script.endswith("\n\n" + chosen.script)
        assert language.text(language.recover(script)) == text
        assert part_edits.read(language, text, None) == script
        texts.add(text)
    # 3 ways for the rows (one of them listed twice), 7 models, 2 constants.
    assert len(texts) == 3 * 7 + 2
    assert "form: model\nrows: part frac=0.5\nmodel: tree_deep up=0.25" in texts
    assert "form: constant\nvalue: zero s=10" in texts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model: tree",
        "form: other",
        "form: model",
        "form: model\nmodel: tree\nrows: all",
        "form: model\nrows: all\nmodel: tree\nmodel: tree",
        "form: model\nrows: all\nmodel: forest",
        "form: model\nrows: all\nmodel: tree up=0.2",
        "form: model\nrows: all\nmodel: tree_deep",
        "form: model\nrows: all\nmodel: tree_deep up=0.4",
        "form: model\nrows: part k=1\nmodel: tree",
    ],
)
def test_what_is_not_of_the_menu_is_an_answer_without_a_script(menu, text):
    with pytest.raises(NotOfTheMenu):
        menu.menu.parse(text)
    with pytest.raises(NoScript):
        part_edits.read(menu.menu, text, None)


def test_names_that_would_read_the_same_are_refused():
    assert label('"a", "b"') == "a,b"
    assert label("") == "plain"
    form = helper.FORMS[1]
    clash = helper.option("value.zero", "x = $s", s=['"1"', "1"])
    with pytest.raises(ValueError, match="'1'"):
        Menu([dataclasses.replace(form, slots={"value": (clash,)})])
    with pytest.raises(ValueError, match="constant"):
        Menu([form, form])


@pytest.mark.parametrize("short", SHORTS)
def test_all_tasks_have_a_menu_that_can_be_read_back(short):
    language = Menu(recipes(short))
    rng = np.random.default_rng(0)
    for _ in range(20):
        chosen = draw(short, rng)
        again = language.recover(language.script(chosen))
        assert again.script == chosen.script
        assert language.text(again) == language.text(chosen)


def test_prompts_name_the_parts_and_show_the_previous_choices(menu):
    language = menu.menu
    base = menu_prompt(TASK, language)
    assert TASK.summary in base
    assert TASK.metric_text in base
    assert shown_parts(base) is shown_form(base) is None
    assert shown_place(base) == 0.5
    text = "form: model\nrows: part frac=0.7\nmodel: tree"
    script = language.script(language.parse(text))
    attempt = Attempt(script, 3.21, score=0.876543, rank=(3, 9), note="Not applied.")
    better = menu_prompt(TASK, language, attempt)
    assert better.startswith("\n".join(base.split("\n")[:2]))
    shown = f"{text}\nScore 0.877 in 3.2 s, place 3 of 9.\nNot applied.\n"
    assert shown in better
    assert better.endswith(part_edits.HOW)
    assert (shown_parts(better), shown_form(better)) == (text, "model")
    assert shown_place(better) == 0.25
    failed = menu_prompt(TASK, language, Attempt(script, 3.21, failure="killed"))
    assert "Failed after 3.2 s." in failed
    assert shown_parts(failed) == text


def test_a_prompt_that_is_too_long_or_of_another_menu(menu):
    text = "form: model\nrows: all\nmodel: tree"
    script = menu.menu.script(menu.menu.parse(text))
    attempt = Attempt(script, 1.0, score=0.5)
    full = menu_prompt(TASK, menu.menu, attempt)
    describe = describer(TASK, menu.menu, len, len(full))
    assert describe(attempt) == full
    assert describe(Attempt("print(1)\n", 1.0, score=0.5)) is None
    # Choices too long to be shown are not improved; a task too long stops the run.
    base = menu_prompt(TASK, menu.menu)
    describe = describer(TASK, menu.menu, len, len(full) - 1)
    assert describe(attempt) is None
    assert describe(None) == base
    with pytest.raises(TaskError, match=f"{len(base)} tokens, the limit is 9"):
        describer(TASK, menu.menu, len, 9)(None)
