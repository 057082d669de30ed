"""Forms that edit their parent: nothing half applied, errors that say what to do."""

import pytest

from experiments.answers import NoScript, get_form
from experiments.answers.edits import EditError
from rpg_tasks.prompts import Attempt, prompt

PARENT = """import numpy as np
from sklearn.linear_model import LogisticRegression

x, y = np.load("x.npy"), np.load("y.npy")
# <protected>
seed = 0
# </protected>
model = LogisticRegression(C=1.0)
model.fit(x, y)
for fold in range(5):
    print(fold)
    print(fold)
"""
SEARCH = get_form("search-replace").read
DIFF = get_form("unified-diff").read


def block(old, new):
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


def diff(*lines, header="@@ -8,1 +8,1 @@"):
    return "\n".join([header, *lines])


C = "model = LogisticRegression(C=1.0)"
SMALLER = "model = LogisticRegression(C=0.1)"
SMALL = PARENT.replace(C, SMALLER)

GOOD = {
    "one line": (SEARCH, block(C, SMALLER), SMALL),
    "words around": (SEARCH, f"Plan: less.\n\n{block(C, SMALLER)}\nDone.", SMALL),
    "in a code fence": (SEARCH, f"```\n{block(C, SMALLER)}```\n", SMALL),
    "carriage returns": (SEARCH, block(C, SMALLER).replace("\n", "\r\n"), SMALL),
    "two blocks": (
        SEARCH,
        block(C, SMALLER) + block("model.fit(x, y)", "model.fit(x[:9], y[:9])"),
        SMALL.replace("fit(x, y)", "fit(x[:9], y[:9])"),
    ),
    "a line is removed": (
        SEARCH,
        "<<<<<<< SEARCH\nmodel.fit(x, y)\n=======\n>>>>>>> REPLACE\n",
        PARENT.replace("model.fit(x, y)\n", ""),
    ),
    "beside protected lines": (
        SEARCH,
        block(f"# </protected>\n{C}", f"# </protected>\n{SMALLER}"),
        SMALL,
    ),
    "a diff": (DIFF, diff(f"-{C}", f"+{SMALLER}"), SMALL),
    "a diff without numbers": (
        DIFF,
        diff(f"-{C}", f"+{SMALLER}", header="@@ @@"),
        SMALL,
    ),
    "a diff in a fence with file names": (
        DIFF,
        "Less.\n```diff\n--- a/s.py\n+++ b/s.py\n"
        + diff(f"-{C}", f"+{SMALLER}")
        + "\n```\n",
        SMALL,
    ),
    "line numbers decide between equal places": (
        DIFF,
        diff("-    print(fold)", "+    print(fold + 1)", header="@@ -12 +12 @@"),
        PARENT[: PARENT.rindex("    print(fold)")] + "    print(fold + 1)\n",
    ),
    "a blank line of context has lost its space": (
        DIFF,
        diff(
            " from sklearn.linear_model import LogisticRegression",
            "",
            '-x, y = np.load("x.npy"), np.load("y.npy")',
            '+x, y = np.load("x.npy")[:9], np.load("y.npy")[:9]',
        ),
        PARENT.replace('"x.npy")', '"x.npy")[:9]').replace('"y.npy")', '"y.npy")[:9]'),
    ),
}

BAD = {
    "missing": (
        SEARCH,
        block("model = Ridge()", SMALLER),
        "missing",
        "closest|No line",
    ),
    "the closest line is named": (
        SEARCH,
        block("model = LogisticRegression(C=2.0)", SMALLER),
        "missing",
        r"closest line is 'model = LogisticRegression\(C=1.0\)'",
    ),
    "indentation": (
        SEARCH,
        block(f"    {C}", SMALLER),
        "missing",
        "indentation differs",
    ),
    "order": (
        SEARCH,
        block(f"model.fit(x, y)\n{C}", C),
        "missing",
        "not in this order",
    ),
    "half a line": (
        SEARCH,
        block("LogisticRegression(C=1.0)", "x"),
        "missing",
        "script",
    ),
    "ambiguous": (SEARCH, block("    print(fold)", "    pass"), "ambiguous", "11, 12"),
    "truncated": (SEARCH, f"<<<<<<< SEARCH\n{C}\n=======\nmodel", "truncated", "end"),
    "cut in the search": (SEARCH, f"<<<<<<< SEARCH\n{C}", "truncated", "end"),
    "second of two is wrong": (
        SEARCH,
        block(C, SMALLER) + block("model.fit(z)", "pass"),
        "missing",
        "model.fit",
    ),
    "elided": (SEARCH, block(C, f"{SMALLER}\n# ... rest unchanged"), "elided", "every"),
    "three dots": (SEARCH, block(C, "..."), "elided", "every line"),
    "no-op": (SEARCH, block(C, C), "no-op", "change something"),
    "protected": (SEARCH, block("seed = 0", "seed = 1"), "protected", "line 6"),
    "inserted between protected lines": (
        SEARCH,
        block("# <protected>\nseed = 0", "# <protected>\nx = y\nseed = 0"),
        "protected",
        "must stay",
    ),
    "a protected marker": (SEARCH, block("# </protected>", "pass"), "protected", "7"),
    "no search": (SEARCH, block("", "x = 1"), "malformed", "no place"),
    "no block": (SEARCH, "I would lower C.", "malformed", "no block"),
    "nested": (SEARCH, f"<<<<<<< SEARCH\n{block(C, C)}", "malformed", "inside"),
    "replace alone": (SEARCH, f"x\n{'>' * 7} REPLACE", "malformed", "without"),
    "the same line twice": (
        SEARCH,
        block(C, SMALLER) + block(C, "pass"),
        "overlapping",
        "line 8",
    ),
    "diff: missing": (DIFF, diff("-model = Ridge()", "+pass"), "missing", "hunk 1"),
    "diff: ambiguous": (
        DIFF,
        diff("-    print(fold)", "+    pass", header="@@ -3,1 +3,1 @@"),
        "ambiguous",
        "2 times",
    ),
    "diff: truncated": (DIFF, f"```diff\n{diff(f'-{C}')}", "truncated", "does not end"),
    "diff: nothing but additions": (DIFF, diff("+pass"), "malformed", "no line"),
    "diff: no-op": (DIFF, diff(f"-{C}", f"+{C}"), "no-op", "stay as it is"),
    "diff: elided": (DIFF, diff(f"-{C}", "+# existing code"), "elided", "write every"),
    "diff: header": (DIFF, "@@ somewhere @@\n-x\n", "malformed", "header"),
    "diff: a line without sign": (DIFF, diff(f"-{C}", "x = 1"), "malformed", "'x = 1'"),
    "diff: none": (DIFF, "nothing", "malformed", "no hunk"),
}


@pytest.mark.parametrize("case", GOOD)
def test_edits_are_applied(case):
    read, answer, script = GOOD[case]
    assert read(answer, PARENT) == script


@pytest.mark.parametrize("case", BAD)
def test_an_edit_that_cannot_be_made_says_why(case):
    read, answer, kind, words = BAD[case]
    with pytest.raises(EditError, match=words) as caught:
        read(answer, PARENT)
    assert caught.value.kind == kind
    assert "\n" not in str(caught.value)


def test_line_ends_are_the_parents():
    parent = PARENT.replace("\n", "\r\n")
    assert SEARCH(block(C, SMALLER), parent) == SMALL.replace("\n", "\r\n")
    assert DIFF(diff(f"-{C}", f"+{SMALLER}"), parent) == SMALL.replace("\n", "\r\n")


@pytest.mark.parametrize("read", [SEARCH, DIFF])
def test_without_a_parent_the_answer_is_a_whole_script(read):
    assert read("```python\nx = 1\n```", None).strip() == "x = 1"
    with pytest.raises(NoScript):
        read(block(C, SMALLER), None)


@pytest.mark.parametrize("name", ["search-replace", "unified-diff"])
def test_the_prompt_asks_for_the_form_and_shows_the_last_error(name, tmp_path):
    """What the loop's hooks put before a policy that edits."""
    public = tmp_path / "public"
    public.mkdir()
    (public / "sample_submission.csv").write_text("id,target\n1,0.5\n")
    form = get_form(name)
    attempt = Attempt(
        PARENT, 3.0, score=0.7, note="The last answer was not applied (x)."
    )
    for style in ("full", "compact"):
        text = prompt("tabular-2022", public, attempt, style=style, how=form.how)
        assert text.endswith(form.how)
        assert attempt.note in text
        assert "with the whole script" not in text
        plain = prompt("tabular-2022", public, style=style)
        assert "```python" in plain
        assert form.how not in plain
