"""Answers that name changed parts: what is read, what is refused and why."""

import menu_help as helper
import pytest

from experiments.answers import NoScript, get_form
from experiments.answers.edits import EditError
from experiments.menus import part_edits
from experiments.menus.menu import Menu
from experiments.menus.part_edits import read
from rpg_tasks import get_task

MENU = Menu(helper.FORMS)
TEXT = "form: model\nrows: all\nmodel: tree_deep up=0.25"
PARENT = MENU.script(MENU.parse(TEXT))


def script(text):
    return MENU.script(MENU.parse(text))


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        ("rows: part frac=0.7", "rows: part frac=0.7\nmodel: tree_deep up=0.25"),
        ("model: tree", "rows: all\nmodel: tree"),
        ("model: tree_deep up=0.3", "rows: all\nmodel: tree_deep up=0.3"),
        ("model: tree\nrows: part frac=0.5", "rows: part frac=0.5\nmodel: tree"),
        ("model: tree\r\nrows: part frac=0.5\r\n", "rows: part frac=0.5\nmodel: tree"),
        ("\n\n  model: tree  \n\n", "rows: all\nmodel: tree"),
        # A part named as it is changes nothing, the other one does.
        ("rows: all\nmodel: tree", "rows: all\nmodel: tree"),
    ],
)
def test_named_parts_change_and_the_others_stay(answer, lines):
    assert read(MENU, answer, PARENT) == script(f"form: model\n{lines}")


def test_a_whole_answer_writes_anew_with_and_without_a_parent():
    other = "form: constant\nvalue: zero s=10"
    assert read(MENU, other, PARENT) == read(MENU, other, None) == script(other)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("", "malformed", "names no part"),
        ("   \n \n", "malformed", "names no part"),
        ("model: tree\nmodel: tree", "malformed", "named twice"),
        ("rows: part frac=0.5\nrows: part frac=0.7", "malformed", "named twice"),
        ("model: tree_deep up=0.25", "no-op", "stay as it is"),
        ("rows: all\nmodel: tree_deep up=0.25", "no-op", "stay as it is"),
        (TEXT, "no-op", "stay as it is"),
        ("modle: tree", "missing", "there is no part 'modle'"),
        ("value: zero s=10", "missing", "the parts are rows, model"),
        ("model: tree_dep up=0.3", "missing", "closest is 'tree_deep'"),
        ("model: tree_deep up=0.31", "missing", "closest is '0.3'"),
        ("model: tree_deep", "missing", "takes up, not none"),
        ("model: tree up=0.2", "missing", "takes no parameter"),
        ("model: tree_deep up=0.", "missing", "up=0. is not on the menu"),
        ("model: tre", "missing", "closest is 'tree'"),
        ("model", "missing", "not a line of a menu"),
        ("model: tree\nsome words", "missing", "not a line of a menu"),
        ("form: model\nrows: all", "missing", "the parts are rows, model"),
        ("form: other", "missing", "the first line"),
        ("```python\nprint(1)\n```", "missing", "not a line of a menu"),
    ],
)
def test_what_cannot_be_applied_leaves_nothing_half_done(answer, kind, words):
    with pytest.raises(EditError, match=words) as caught:
        read(MENU, answer, PARENT)
    assert caught.value.kind == kind
    assert "\n" not in str(caught.value)
    if kind != "no-op":
        with pytest.raises(NoScript):
            read(MENU, answer, None)


def test_a_script_of_another_menu_is_no_parent():
    with pytest.raises(EditError, match="missing"):
        read(MENU, "model: tree", "print(1)\n")


def test_the_form_is_bound_to_a_task():
    form = get_form(part_edits.NAME)
    with pytest.raises(TypeError, match="with a task's menu"):
        form.read("", None)
    bound = form.bind(get_task("insults"))
    assert (bound.name, bound.how) == (form.name, form.how)
    with pytest.raises(NoScript):
        bound.read("form: other", None)
    whole = get_form("whole-script")
    assert whole.bind(get_task("insults")) is whole
