"""The examples that the embedded policy is taught: what is drawn, not run."""

import ast
import difflib
import re

import numpy as np
import pytest
from synthetic_helpers import SHORTS, shared_cache

from experiments.menus import draw
from experiments.teaching.examples import corpus, generate
from experiments.teaching.failures import KINDS, SYNTAX, fail
from experiments.teaching.writer import parses
from rpg_tasks import prepare_task
from rpg_tasks.prompts import extract_script, prompt


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    return [prepare_task(short, cache_dir=cache) for short in SHORTS]


@pytest.fixture(scope="module")
def examples(data):
    return list(corpus(data, per_task=20))


def touched(before: str, after: str) -> float:
    """Share of the lines that an edit leaves no trace of."""
    a, b = before.splitlines(), after.splitlines()
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return 1 - same / max(len(a), len(b))


def test_sound_scripts_parse_and_import_what_they_use(examples):
    for e in examples:
        if e.failure is None:
            tree = ast.parse(e.script)
            body = e.script.split("\n\n", 1)[1]
            assert e.script.count('"submission.csv"') == 1, e.script
            imported = {
                alias.asname or alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.Import | ast.ImportFrom)
                for alias in node.names
            }
            used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
            assert imported - {"np", "pd"} <= used, (imported - used, body)


def test_scripts_read_nothing_but_their_inputs(examples):
    for e in examples:
        if e.failure is None:
            tree = ast.parse(e.script)
            constants = _texts(tree)
            for text in constants:
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


def test_equal_seeds_give_equal_examples(data, examples):
    again = list(corpus(data[:1], per_task=10))
    assert again == examples[:10]
    other = list(corpus(data[:1], per_task=10, seed=1))
    assert [e.script for e in other] != [e.script for e in again]


def test_prompts_are_those_of_the_loop(data, examples):
    public = {d.task.short: d.public for d in data}
    for e in examples:
        assert extract_script(e.completion) == e.script
        assert (e.previous is None) == (e.prompt_kind == "base")
        if e.prompt_kind == "base":
            assert e.prompt == prompt(e.task, public[e.task], style="compact")
        else:
            # The previous script stands in the prompt, whole.
            assert f"```python\n{e.previous.strip()}\n```" in e.prompt
            assert "Previous script: " in e.prompt


def test_unknown_kind_is_refused(data):
    with pytest.raises(ValueError, match="'base' or 'improve'"):
        generate(data[0].task, data[0], np.random.default_rng(0), kind="other")


def test_improve_pairs_edit_locally(examples):
    pairs = [e for e in examples if e.previous is not None]
    share = np.array([touched(e.previous, e.script) for e in pairs])
    assert np.median(share) < 0.3
    assert np.mean(share < 0.5) > 0.75
    rewrites = np.mean([e.edit == "rewrite" for e in pairs])
    assert 0.05 < rewrites < 0.2
    assert np.mean([e.script == e.previous for e in pairs]) < 0.02
    assert {e.edit for e in pairs} == {"value", "option", "repair", "rewrite"}


def test_a_few_in_a_hundred_fail(examples):
    failing = np.mean([e.failure is not None for e in examples])
    assert 0.02 < failing < 0.09
    # 440 scripts: four standard errors below 98.5%.
    assert np.mean([parses(e.script) for e in examples]) > 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_failure_changes_the_script(kind):
    rng = np.random.default_rng(0)
    made = 0
    for short in SHORTS:
        script = draw(short, rng).script
        if (found := KINDS[kind](script, rng)) is not None:
            made += 1
            assert found[0] != script
            assert parses(found[0]) == (kind not in SYNTAX)
    assert made >= 3


def test_a_script_without_anything_to_break_is_an_error():
    with pytest.raises(ValueError, match="no kind of failure"):
        fail("pass\n", np.random.default_rng(0))


def test_results_in_prompts_tell_nothing_about_the_script(data):
    """The score is drawn after the script and whatever it is."""
    by_form = {}
    rng = np.random.default_rng(0)
    for _ in range(400):
        e = generate("insults", data[SHORTS.index("insults")], rng, kind="improve")
        found = e.prompt.partition("Previous script: score ")[2]
        if found:
            cheap = "sklearn" not in e.previous
            by_form.setdefault(cheap, []).append(float(found.split()[0]))
    few, many = sorted(by_form.values(), key=len)
    # Uniform on [0.4, 1]: six standard errors of the difference of means.
    spread = 0.6 / np.sqrt(12) * np.sqrt(1 / len(few) + 1 / len(many))
    assert abs(np.mean(few) - np.mean(many)) < 6 * spread
