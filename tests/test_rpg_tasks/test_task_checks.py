"""`rpg-tasks check` passes a sound task, and sees each thing that can be wrong."""

import pytest
import toy_task

from rpg_tasks import registry
from rpg_tasks.check_folder import CHECKS, check_task


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Checks the toy task after a change of one of its files: code and lines."""
    monkeypatch.setattr(registry, "_registered", [])
    folder = toy_task.write(tmp_path) / toy_task.NAME
    # The rows do not matter here, and two hundred of them are quicker.
    toy_task.change(folder, "data.py", "small=(2000, 400)", "small=(200, 40)")

    def run(*changes):
        for change in changes:
            toy_task.change(folder, *change)
        code = check_task(folder)
        return code, capsys.readouterr().out.splitlines()

    return run


def test_a_sound_task_passes_every_check(check):
    code, lines = check()
    assert code == 0
    assert [line.split()[0] for line in lines] == ["ok"] * (2 + len(CHECKS))


LEAKY = "write_csv(train, public / 'train.csv'); write_csv(frame, public / 'all.csv')"
TOLD = 'write_csv(hidden[["id", "y"]]'


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("task.toml", 'direction = "min"', "", "direction: this key is missing"),
        ("task.toml", '"rmse"', '"rsme"', "grading.metric: there is no 'rsme'"),
        ("data.py", "CARVE =", "CARVED =", "CARVE is missing"),
        ("data.py", "n = n_train", "n = 1 / 0 + n_train", "ZeroDivisionError"),
        ("task.toml", '["train.csv",', '["train.csv", "b/*.png",', "is no b/*.png"),
        (
            "data.py",
            'write_csv(train, public / "train.csv")',
            LEAKY,
            "files that task.toml does not name: ['all.csv']",
        ),
        ("data.py", 'hidden.drop(columns="y")', "hidden", "test.csv shows ['y'] of"),
        (
            "data.py",
            'write_csv(hidden[["id"]].assign(y=0.0)',
            TOLD,
            "rows of the sample submission differ",
        ),
        ("data.py", "write_csv(hidden[[", "write_csv(hidden[::-1][[", "has other ids"),
        ("data.py", "rng.normal(0, 0.1, n)", "np.random.normal(0, 0.1, n)", "made twi"),
        ("data.py", "assign(y=0.0)", 'assign(y="none")', "the sample submission"),
    ],
)
def test_what_is_wrong_is_seen(check, file, old, new, words):
    code, lines = check((file, old, new))
    assert code == 1
    failed = [line for line in lines if line.startswith("FAILED")]
    assert any(words in line for line in failed), lines


def _failed(lines):
    return " | ".join(line for line in lines if line.startswith("FAILED"))


def test_a_by_file_with_labels_is_seen(check):
    train = 'write_csv(train, public / "train.csv")'
    code, lines = check(
        ("data.py", train, f"{train}\n    {train.replace('train.csv', 'copy.csv')}"),
        ("data.py", "TableLayout()", 'TableLayout(keep=("copy.csv",))'),
        ("task.toml", '["train.csv",', '["train.csv", "copy.csv",'),
    )
    assert code == 1
    assert "copy.csv shows ['y'] of hidden rows" in _failed(lines)


def test_a_view_that_depends_on_hidden_fields_is_seen(check):
    telling = ("data.py", "TableLayout()", 'TableLayout(sample_copies=("y",))')
    code, lines = check(telling)
    assert code == 1
    assert "public files change with hidden fields: ['sample_sub" in _failed(lines)


def test_a_carver_that_is_a_function_is_not_tested_for_leaks(check):
    carver = (
        "def carve(draw, src, public, private):\n"
        "    carve_table(TableLayout(), draw, src, public, private)\n\n\n"
        "CARVE = carve"
    )
    code, lines = check(
        ("data.py", "import SplitRule", "import carve_table, SplitRule"),
        ("data.py", "CARVE = TableLayout()", carver),
    )
    assert code == 0
    assert lines[-1].startswith("skipped")
