"""A task's own menu: read from its folder, checked, used like a shipped one."""

import os

import numpy as np
import pytest
import toy_task

from experiments.config.errors import LoopError
from experiments.menus import (
    Menu,
    MenuError,
    NoMenu,
    draw,
    draw_script,
    has_menu,
    recipes,
    task_menu,
)
from experiments.menus.grammar import token_menu
from experiments.teaching.examples import generate
from experiments.teaching.tiny_model import tiny_config
from rpg_jax.llm import load_tokenizer
from rpg_tasks import registry
from rpg_tasks.registry import get_task

TINY = tiny_config(3072)
ROW = """
variables = { id = "row", target = "price" }
drop = ["regressor.boosting"]
forms.model.load = "own.load"
forms.model.fit = ["own.fit", "own.fit_more"]
forms.model.write = "own.write"
forms.constant = { weight = 0.5, load = "own.load", write = "own.write" }

[values]
"fit.mean" = { share = [0.25] }

[own.load.csv]
code = 'train = pd.read_csv("input/train.csv")'

[own.fit.mean]
code = 'p = train["$target"].mean() * $share'
values = { share = [0.5, 1.0] }

[own.fit_more.median]
code = 'p = train["$target"].median()'

[own.write.csv]
code = 'pd.DataFrame({"$id": [0], "$target": [p]}).to_csv("submission.csv")'
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a task that is registered from elsewhere."""

    def task_folder(short):
        if short == "house-prices":
            return tmp_path
        return registry.task_folder(short)

    monkeypatch.setattr(task_menu, "task_folder", task_folder)
    return tmp_path


def test_a_task_folder_brings_its_own_row(folder):
    assert not has_menu("house-prices")
    (folder / "menu.toml").write_text(ROW)
    assert has_menu("house-prices")
    model, constant = recipes("house-prices")
    assert [option.name for option in model.slots["fit"]] == [
        "fit.mean",
        "fit_more.median",
    ]
    # The task's own values take the place of the option's.
    assert model.slots["fit"][0].domains == {"share": ("0.25",)}
    assert constant.weight == 0.5
    chosen = draw_script([model], np.random.default_rng(0))
    assert 'train = pd.read_csv("input/train.csv")' in chosen.script
    assert '"row": [0], "price": [p]' in chosen.script
    menu = Menu(recipes("house-prices"))
    assert menu.recover(menu.script(chosen)).script == chosen.script


def test_shipped_tasks_have_rows_and_others_none():
    assert has_menu("insults")
    assert not has_menu("house-prices")


def test_a_changed_file_is_read_again(folder):
    path = folder / "menu.toml"
    path.write_text(ROW)
    assert len(recipes("house-prices")) == 2
    path.write_text(ROW.replace("forms.constant", "# forms.constant"))
    os.utime(path, ns=(0, 1))
    assert len(recipes("house-prices")) == 1


def test_own_rows_may_name_the_shared_menus(folder):
    row = 'forms.model = { model = "models.regressor" }\ndrop = ["regressor.ridge"]\n'
    (folder / "menu.toml").write_text(row)
    (recipe,) = recipes("house-prices")
    names = [option.name for option in recipe.slots["model"]]
    assert "regressor.ridge" not in names
    assert names


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("", "a row needs a form"),
        ("form.model = {}", r"unknown keys \['form'\]"),
        ('forms.model = { load = "own.load" }', "own.load: own has the slots"),
        ('forms.model = { load = "nowhere.load" }', r"no menu file nowhere\.toml"),
        ('forms.model = { load = "tables.nothing" }', "tables has the slots"),
        (
            'drop = ["load.a"]\nforms.model = { load = "own.load" }\nown.load.a = {}',
            r"forms\.model\.load: every option is dropped",
        ),
        (
            'forms.model = { load = "own.load" }\nown.load.a = { cod = "x" }',
            r"option load\.a: unknown keys",
        ),
        ("forms = [", "Invalid"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_with_its_file(folder, row, message):
    path = folder / "menu.toml"
    path.write_text(row)
    with pytest.raises(MenuError, match=message) as caught:
        recipes("house-prices")
    assert str(path) in str(caught.value)


def test_a_task_without_a_menu_says_where_one_goes(folder, monkeypatch):
    with pytest.raises(NoMenu, match=r"add a menu\.toml"):
        recipes("house-prices")
    monkeypatch.setitem(task_menu._table("tasks"), "insults", {})
    task_menu._shipped_recipes.cache_clear()
    try:
        with pytest.raises(LoopError, match="a row needs a form"):
            token_menu(get_task("insults"), None, None)
    finally:
        task_menu._shipped_recipes.cache_clear()


def test_a_registered_task_is_prompted_taught_and_chosen_for(tmp_path, monkeypatch):
    """The guide's task with a menu of its own, found as a user's task is."""
    root = toy_task.write(tmp_path)
    row = ROW.replace('id = "row", target = "price"', 'id = "id", target = "y"')
    (root / toy_task.NAME / "menu.toml").write_text(row)
    monkeypatch.setenv("RPG_TASKS_PATH", str(root))
    rng = np.random.default_rng(0)
    for kind in ("base", "improve"):
        example = generate(toy_task.SHORT, rng, kind=kind)
        assert f"Task {toy_task.SHORT}" in example.prompt
    tokenizer = load_tokenizer("tiny")
    choices = token_menu(get_task(toy_task.SHORT), TINY, tokenizer)
    text = choices.menu.text(draw(toy_task.SHORT, rng))
    assert choices.tree.accepts(
        choices.starts[None], tokenizer.encode(text, add_special_tokens=False)
    )
