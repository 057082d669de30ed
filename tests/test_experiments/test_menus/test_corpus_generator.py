"""The corpus generator: what it writes, without running it."""

import ast
import difflib
import re

import numpy as np
import pytest
from experiments.teaching.failures import KINDS, SYNTAX, fail
from synthetic_helpers import SHORTS, shared_cache

from experiments.menus import draw, recipes
from experiments.menus.source import header, with_imports
from experiments.teaching.examples import corpus, generate
from experiments.teaching.tokenizer import save, train_tokenizer
from rpg_jax.llm import load_tokenizer
from rpg_jax.llm.tokenizer import chat_ids, stop_ids
from rpg_tasks import prepare_task
from rpg_tasks.prompts import extract_script, prompt

# Of the policy: prompt, answer and end together.
CONTEXT = 2048
ANSWER = 900


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    return [prepare_task(short, cache_dir=cache) for short in SHORTS]


@pytest.fixture(scope="module")
def examples(data):
    return list(corpus(data, per_task=40))


@pytest.fixture(scope="module")
def tokenizer(examples, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    made = train_tokenizer(t for e in examples for t in (e.prompt, e.completion))
    return load_tokenizer(save(made, folder))


def parses(script: str) -> bool:
    try:
        ast.parse(script)
    except SyntaxError:
        return False
    return True


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


def test_every_option_of_every_task_renders_and_is_defined():
    """Each option of each slot, not only what a sample happens to draw."""
    rng = np.random.default_rng(0)
    for short in SHORTS:
        for recipe in recipes(short):
            for slot, options in recipe.slots.items():
                for option in options:
                    choices = recipe.draw(rng)
                    values = [(k, v[-1]) for k, v in option.domains.items()]
                    pick = type(choices[slot])(option.name, tuple(values))
                    script = recipe.render({**choices, slot: pick})
                    assert parses(script), script
                    assert "$" not in script.replace('itude$|count"', "")
                    _assert_names_defined(script)


def _assert_names_defined(script: str) -> None:
    """Every name that is read is a builtin, imported, or bound somewhere."""
    tree = ast.parse(script)
    bound = set(dir(__builtins__)) if not isinstance(__builtins__, dict) else set()
    bound |= set(__builtins__) if isinstance(__builtins__, dict) else set()
    read = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.FunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
    assert read <= bound, (read - bound, script)


@pytest.mark.parametrize("short", SHORTS)
def test_five_hundred_scripts_parse_and_few_are_twins(short):
    rng = np.random.default_rng(1)
    scripts = [draw(short, rng).script for _ in range(500)]
    assert len(set(scripts)) >= 0.8 * 500
    assert all(map(parses, scripts))
    lines = [s.count("\n") for s in scripts]
    assert 10 <= np.median(lines) <= 48
    assert max(lines) <= 60


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
    # 880 scripts: five standard errors below 98.5%.
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


def test_the_top_has_what_every_script_needs_and_steps_import_their_own():
    blocks = [
        "os.listdir('.')",
        "def features(path):\n    row = []",
        "    row += [median_filter(path, 3).std()]",
        "    row += [median_filter(path, 5).std(), label(path)[1]]",
        "x = label(3)\nmodel = Ridge()",
        "print(cross_val_score(Ridge(), x))",
    ]
    assert header() == "import numpy as np\nimport pandas as pd"
    found = with_imports(blocks)
    assert found[0] == "import os\n" + blocks[0]
    assert found[2].startswith("    from scipy.ndimage import median_filter\n    row")
    # Known inside the function, unknown after it.
    assert found[3].startswith("    from scipy.ndimage import label\n    row")
    assert found[4] == (
        "from scipy.ndimage import label\nx = label(3)\n"
        "from sklearn.linear_model import Ridge\nmodel = Ridge()"
    )
    assert found[5].startswith("from sklearn.model_selection import cross_val_score\np")


# --- tokenizer ----------------------------------------------------------------------


def test_texts_come_back_from_the_tokenizer(tokenizer, examples):
    strange = (
        "  \n\n\ttab \x00\x7f \u00e9\u4e2d\U0001f600 \ufeff 0123456789 ``` 3.14e-7"
    )
    for text in [strange, *(t for e in examples for t in (e.prompt, e.completion))]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
    assert 2000 <= len(tokenizer) <= 4096


def test_prompt_and_answer_fit_the_context(tokenizer, examples):
    for e in examples:
        asked = len(chat_ids(tokenizer, e.prompt))
        answer = len(tokenizer.encode(e.completion, add_special_tokens=False)) + 1
        assert answer <= ANSWER
        assert asked + answer <= CONTEXT, (e.task, e.prompt_kind, asked, answer)


def test_chat_template_is_that_of_the_turns(tokenizer):
    ids = chat_ids(tokenizer, "Hello")
    vocabulary = tokenizer.get_vocab()
    assert ids[0] == vocabulary["<|im_start|>"]
    assert vocabulary["<|im_end|>"] in ids
    assert tokenizer.eos_token_id == vocabulary["<|im_end|>"]
    assert tokenizer.pad_token_id == vocabulary["<|endoftext|>"]
    messages = [{"role": "user", "content": "Hello"}]
    text = [
        tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
        for thinking in (False, True)
    ]
    expected = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert text == [expected, expected]


def test_end_of_turn_stops_the_sampler(tokenizer):
    class Config:
        eos_token_id = ()

    vocabulary = tokenizer.get_vocab()
    assert set(stop_ids(Config, tokenizer)) == {
        vocabulary["<|im_end|>"],
        vocabulary["<|endoftext|>"],
    }
