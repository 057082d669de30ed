"""The examples that the embedded policy is taught: what is drawn, not run."""

import ast
import itertools
import re

import numpy as np
import pytest
from synthetic_helpers import SHORTS

from experiments.answers import NoScript
from experiments.menus import draw, part_edits
from experiments.menus.edits import changed, draw_edit, edit, open_slots
from experiments.menus.prompt import shown_parts
from experiments.menus.task_menu import menu_of
from experiments.teaching.examples import corpus, generate
from experiments.teaching.inheritance import similarity


@pytest.fixture(scope="module")
def examples():
    return list(corpus(SHORTS, per_task=20))


def test_scripts_parse_and_import_what_they_use(examples):
    for e in examples:
        tree = ast.parse(e.script)
        assert e.script.count('"submission.csv"') == 1, e.script
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        assert imported - {"np", "pd"} <= used, (imported - used, e.script)


def test_scripts_read_nothing_but_their_inputs(examples):
    for e in examples:
        tree = ast.parse(e.script)
        for text in _texts(tree):
            assert not re.match(r"/\w|~|\.\.", text), text
            assert "://" not in text
            # What looks like a path of the data is below input/, or a suffix.
            if text.endswith((".csv", ".zip", ".json", ".txt")) and len(text) > 5:
                assert text.startswith("input/") or text == "submission.csv", text
        calls = {n.func.id for n in ast.walk(tree) if _is_plain_call(n)}
        assert not calls & {"eval", "exec", "__import__", "compile"}


def _texts(tree: ast.AST) -> list[str]:
    """Every string, those with parts filled in as one (a part is an ``x``)."""
    inner, texts = set(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [
                v.value if isinstance(v, ast.Constant) else "x" for v in node.values
            ]
            texts.append("".join(parts))
            inner |= {id(v) for v in node.values}
    plain = (n for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return texts + [
        n.value for n in plain if isinstance(n.value, str) and id(n) not in inner
    ]


def _is_plain_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def test_equal_seeds_give_equal_examples(examples):
    again = list(corpus(SHORTS[:1], per_task=10))
    assert again == examples[:10]
    other = list(corpus(SHORTS[:1], per_task=10, seed=1))
    assert [e.script for e in other] != [e.script for e in again]


def test_completions_are_read_as_the_loop_reads_them(examples):
    for e in examples:
        menu = menu_of(e.task)
        assert part_edits.read(menu, e.completion, e.previous) == e.script
        shown = shown_parts(e.prompt)
        assert (e.previous is None) == (e.kind == "base") == (shown is None)
        if e.previous is not None:
            assert menu.script(menu.parse(shown)) == e.previous


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'base' or 'improve'"):
        generate("insults", np.random.default_rng(0), kind="other")


def test_improvements_change_something_and_little(examples):
    pairs = [e for e in examples if e.kind == "improve"]
    assert all(e.script != e.previous for e in pairs)
    own = np.mean([similarity(e.script, e.previous) for e in pairs])
    other = np.mean(
        [
            similarity(a.script, b.previous)
            for a, b in itertools.pairwise(pairs)
            if a.task == b.task
        ]
    )
    assert own > other + 0.15
    lines = np.array([len(e.completion.split("\n")) for e in pairs])
    assert np.mean(lines == 1) > 0.5
    whole = np.array([e.completion.startswith("form:") for e in pairs])
    assert 0.02 < np.mean(whole | (lines > 3)) < 0.2  # an edit changes three parts


@pytest.mark.parametrize("short", SHORTS)
def test_an_edit_gives_another_pick_for_every_part_that_can_change(short):
    rng = np.random.default_rng(0)
    menu = menu_of(short)
    before = draw(short, rng)
    slots = open_slots(before.recipe)
    assert slots == list(menu.parts[before.recipe.name])
    for slot in slots:
        for _ in range(20):
            pick = changed(before.recipe, slot, before.choices[slot], rng)
            assert pick != before.choices[slot]
    for _ in range(20):
        after = edit(before, rng)
        differing = {s for s in slots if after.choices[s] != before.choices[s]}
        assert 1 <= len(differing) <= 3
        lines = menu.changes(before, after).split("\n")
        assert {line.split(":")[0] for line in lines} == differing


def test_the_worst_parent_is_left_for_another_script_more_often():
    rng = np.random.default_rng(0)
    forms = tuple(menu_of("insults").forms.values())
    before = draw("insults", rng)
    jumps = []
    for place in (0.0, 1.0):
        drawn = [draw_edit(forms, before, rng, place=place) for _ in range(1500)]
        moved = [
            sum(a.choices.get(s) != p for s, p in before.choices.items()) > 3
            or a.recipe is not before.recipe
            for a in drawn
        ]
        jumps.append(np.mean(moved))
    # .03 and .12, of which a few change no more than an edit does; six standard errors.
    assert jumps[0] < 0.03 + 6 * (0.03 * 0.97 / 1500) ** 0.5
    assert jumps[1] > jumps[0] + 0.03


def test_what_prompts_say_of_results_tells_nothing_about_the_script():
    """The score is drawn after the script and whatever it is."""
    by_form = {}
    rng = np.random.default_rng(0)
    for _ in range(400):
        e = generate("insults", rng, kind="improve")
        found = re.search(r"^Score (\S+) in (\S+) s, place \d+ of \d+\.$", e.prompt, 8)
        cheap = "sklearn" not in e.previous
        by_form.setdefault(cheap, []).append(float(found[1]))
    few, many = sorted(by_form.values(), key=len)
    # Uniform on [0.2, 1]: six standard errors of the difference of means.
    spread = 0.8 / np.sqrt(12) * np.sqrt(1 / len(few) + 1 / len(many))
    assert abs(np.mean(few) - np.mean(many)) < 6 * spread


def test_some_prompts_say_why_an_answer_was_not_applied():
    rng = np.random.default_rng(0)
    drawn = [generate("insults", rng, kind="improve") for _ in range(300)]
    noted = [e for e in drawn if "The last answer was not applied (" in e.prompt]
    assert 1 <= len(noted) < 40
    assert any("no-op edit" in e.prompt for e in noted)


def test_an_answer_of_another_task_is_refused(examples):
    insults = next(e for e in examples if e.task == "insults" and e.kind == "base")
    with pytest.raises(NoScript):
        part_edits.read(menu_of("nyc-taxi"), insults.completion, None)
