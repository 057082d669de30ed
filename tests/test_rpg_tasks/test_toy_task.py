"""A task from outside: the guide's own files, found, made, graded and prompted."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import toy_task
from repo_paths import ROOT

from rpg_tasks import (
    Grader,
    TaskError,
    get_task,
    load_tasks,
    prepare_task,
    register_task_folder,
    registry,
    scores,
)
from rpg_tasks.digests import data_version
from rpg_tasks.prompts import STYLES, prompt


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """The folder that holds the toy task's folder; nothing stays registered."""
    monkeypatch.setattr(registry, "_registered", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return toy_task.write(tmp_path)


def test_a_registered_task_is_prepared_graded_and_prompted(tasks, tmp_path):
    task = register_task_folder(tasks / toy_task.NAME)
    assert task is get_task(toy_task.SHORT)
    assert list(load_tasks())[-1] == toy_task.SHORT
    assert (task.medals, task.paper, task.order) == (None, None, None)
    data = prepare_task(task)
    train, test = (pd.read_csv(data.public / f"{n}.csv") for n in ("train", "test"))
    assert not set(train["batch"]) & set(test["batch"])
    assert "y" not in test

    terms = [np.ones(len(train)), train["a"], train["b"] ** 2]
    weights = np.linalg.lstsq(np.stack(terms, 1), train["y"], rcond=None)[0]
    guess = weights @ np.stack([np.ones(len(test)), test["a"], test["b"] ** 2])
    test[["id"]].assign(y=guess).to_csv(tmp_path / "submission.csv", index=False)
    grader = Grader(task, data.answers, data.sample)
    verdict = grader.grade(tmp_path / "submission.csv")
    assert verdict.valid
    assert verdict.score == pytest.approx(0.32, abs=0.05)
    assert 0.85 < verdict.gain < 1.0
    assert (verdict.medal, verdict.above_median) == (None, False)
    assert scores.medal(task, 0.0) is None

    for style in STYLES:
        text = prompt(task, data.public, style=style)
        assert task.summary in text
        assert "train.csv" in text
        assert "batch is on one side" not in text  # traps are for people


def test_the_guides_python_block_runs_as_it_stands(tasks, monkeypatch, capsys):
    monkeypatch.chdir(tasks.parent)
    (block,) = toy_task.blocks("python")
    exec(compile(block, "guide", "exec"), {})
    assert "Two measured quantities" in capsys.readouterr().out


def test_the_environment_variable_works_in_a_new_process(tasks):
    code = (
        "import sys; from rpg_tasks import get_task, prepare_task;"
        f"print(prepare_task({toy_task.SHORT!r}).answers);"
        "print('jax' in sys.modules, 'experiments' in sys.modules)"
    )
    other = tasks.parent / "none_here"
    other.mkdir()
    where = os.pathsep.join([str(other), "", str(tasks)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "RPG_TASKS_PATH": where},
    )
    answers, loaded = done.stdout.splitlines()
    assert pd.read_csv(answers).columns.tolist() == ["id", "batch", "a", "b", "y"]
    assert loaded == "False False"


def test_a_name_can_be_taken_once(tasks):
    folder = tasks / toy_task.NAME
    register_task_folder(folder)
    assert register_task_folder(folder).short == toy_task.SHORT
    copy = toy_task.write(tasks.parent / "again") / toy_task.NAME
    with pytest.raises(TaskError, match=r"again.*toy-regression' is taken by"):
        register_task_folder(copy)
    assert list(load_tasks()).count(toy_task.SHORT) == 1


def test_wrong_places_are_named(tasks, monkeypatch):
    with pytest.raises(TaskError, match=r"no task's folder: it has no task\.toml"):
        register_task_folder(tasks)
    monkeypatch.setenv("RPG_TASKS_PATH", str(tasks / "nowhere"))
    with pytest.raises(TaskError, match=r"RPG_TASKS_PATH names .*nowhere"):
        load_tasks()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('direction = "min"', 'direction = "up"', "direction: must be 'max' or 'min'"),
        ('direction = "min"', "", "direction: this key is missing"),
        ("summary =", "sumary =", "summary: this key is missing .is 'sumary' meant"),
        ("wall_limit_s = 60", "wall_limit = 60", "wall_limit: there is no such key"),
        (
            "wall_limit_s = 60",
            'wall_limit_s = "1 min"',
            "wall_limit_s: must be a num",
        ),
        ("{ y = 0.0 }", "{ z = 0.0 }", "sample.z: is neither a target nor 'all'"),
        ("{ y = 0.0 }", '{ y = "mean" }', "sample.y: must be a number, 'uniform' or"),
        ('rows = "count", ', "", "grading.rows: this key is missing"),
        ('rows = "count"', "rows = 3", "grading.rows: must be text, not 3"),
        ('files = ["train.csv",', "files = [3,", "files: must be a list of texts"),
        ('"sample_submission.csv"]', "]", "files: lacks the sample_file"),
        ('short = "toy-', 'short = "my-', "short: 'my-regression' belongs in a folder"),
        ('short = "toy-', 'short = "Toy ', "short: must be like 'my-task-1'"),
        ("wall_limit_s", "order = true\nwall_limit_s", "order: must be a whole number"),
        ("wall_limit_s", "medals = { gold = 1 }\nwall_limit_s", "medals.silver: this"),
        ("short =", "short = =", "cannot be read: "),
    ],
)
def test_a_wrong_record_is_one_line_with_file_and_key(tasks, old, new, words):
    folder = tasks / toy_task.NAME
    toy_task.change(folder, "task.toml", old, new)
    with pytest.raises(TaskError, match=words) as caught:
        register_task_folder(folder)
    assert "\n" not in str(caught.value)
    assert str(folder / "task.toml") in str(caught.value)
    assert toy_task.SHORT not in load_tasks()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("SPLIT = ", "SPLITS = ", "SPLIT is missing: define it as a SplitRule"),
        ("CARVE = TableLayout()", "CARVE = 3", "CARVE must be a TableLayout or a func"),
        (
            "TableLayout()",
            'TableLayout(id="bottle")',
            "CARVE: the id column is 'bottle'",
        ),
        ("SplitRule(", 'SplitRule(stratify="y", ', "SPLIT: stratify must be a tuple"),
        ("SYNTHETIC = ", "SYNTHETIC = 1 #", "SYNTHETIC must be a SyntheticData, not 1"),
        ("import pandas as pd", "import pandaz as pd", "No module named 'pandaz'"),
        ("def generate(", "def generate((", "SyntaxError"),
    ],
)
def test_wrong_code_is_one_line_with_file_and_name(tasks, old, new, words):
    folder = tasks / toy_task.NAME
    toy_task.change(folder, "data.py", old, new)
    task = register_task_folder(folder)
    with pytest.raises(TaskError, match=words) as caught:
        prepare_task(task)
    assert "\n" not in str(caught.value)
    assert str(folder / "data.py") in str(caught.value)


def test_an_unknown_policy_is_named_with_the_choices(tasks):
    folder = tasks / toy_task.NAME
    toy_task.change(folder, "task.toml", '"rmse"', '"rsme"')
    task = register_task_folder(folder)
    data = prepare_task(task)
    with pytest.raises(TaskError, match=r"task.toml: grading.metric: .*rmse, rmsle"):
        Grader(task, data.answers)


def test_the_version_is_of_the_folder_and_of_shared_code(tasks):
    others = [data_version(name) for name in ("whale", "pizza")]
    assert others[0] != others[1]
    versions = []
    for name, old, new in (
        ("one", "3 * frame", "3 * frame"),
        ("two", "3 * frame", "4 * frame"),
    ):
        folder = toy_task.write(tasks.parent / name) / toy_task.NAME
        toy_task.change(folder, "data.py", old, new)
        registry._registered.clear()
        versions.append(data_version(register_task_folder(folder)))
    assert versions[0] != versions[1]
    registry._registered.clear()
    same = register_task_folder(tasks / toy_task.NAME)
    assert data_version(same) == versions[0]
    assert [data_version(name) for name in ("whale", "pizza")] == others


def test_real_data_of_a_task_of_ones_own(tasks, tmp_path):
    task = register_task_folder(tasks / toy_task.NAME)
    with pytest.raises(TaskError, match=r"put its files below .*toy-regression"):
        prepare_task(task, data="mlebench", data_dir=tmp_path / "data")
    made = prepare_task(task)
    home = tmp_path / "data" / toy_task.SHORT
    home.mkdir(parents=True)
    (home / "prepared").symlink_to(made.test_public.parent)
    real = prepare_task(task, data="mlebench", data_dir=tmp_path / "data")
    assert real.answers.read_bytes() == made.answers.read_bytes()
