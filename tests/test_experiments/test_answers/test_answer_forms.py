"""Answer forms: the registry, the whole script, the form that the guide adds."""

import re
import subprocess
import sys

import pytest
from repo_paths import ROOT

from experiments.answers import FORMS, AnswerForm, NoScript, get_form, register_form

GUIDE = ROOT / "docs" / "parts" / "add_an_answer_form.md"
BLOCK = re.compile(
    r'^```python title="(\w+\.py)"\n(.*?)^```$', re.DOTALL | re.MULTILINE
)


@pytest.fixture
def forms():
    """The forms there are; what a test adds is gone afterwards."""
    known = dict(FORMS)
    yield FORMS
    FORMS.clear()
    FORMS.update(known)


def test_a_whole_script_does_not_need_its_parent():
    form = get_form("whole-script")
    answer = "Plan: fit.\n\n```python\nprint(1)\n```"
    assert form.read(answer, None) == form.read(answer, "print(0)\n") == "print(1)\n"
    with pytest.raises(NoScript, match="no fenced Python block"):
        form.read("LINE 1: print(1)", "print(0)\n")


def test_forms_are_found_by_name(forms):
    form = register_form(AnswerForm("echo", lambda answer, parent: answer))
    assert get_form("echo") is form
    assert register_form(form) is form
    with pytest.raises(ValueError, match="'echo' already"):
        register_form(AnswerForm("echo", lambda answer, parent: answer))
    with pytest.raises(ValueError, match=r"choose from whole-script, .*, echo"):
        get_form("patch")


def test_the_guides_form_and_its_test_run(tmp_path):
    """As a reader would: both files in a folder, pytest on the second."""
    blocks = dict(BLOCK.findall(GUIDE.read_text("utf-8")))
    assert list(blocks) == ["my_form.py", "test_my_form.py"]
    for name, code in blocks.items():
        (tmp_path / name).write_text(code, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_reading_answers_needs_no_jax():
    code = "import sys, experiments.answers, experiments.menus; "
    code += "print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
