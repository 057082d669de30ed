"""Menus as grammars: what they spell, for letters and for a real tokenizer."""

import dataclasses

import loop_help
import menu_help as helper
import numpy as np
import pytest
from synthetic_helpers import SHORTS

from experiments.config.errors import LoopError
from experiments.config.presets import SMOLLM2
from experiments.menus import part_edits
from experiments.menus.grammar import TokenMenu, token_menu
from experiments.menus.menu import Menu
from experiments.menus.prompt import menu_prompt
from experiments.menus.task_menu import draw
from rpg_tasks import get_task
from rpg_tasks.prompts import Attempt, NoScript


@pytest.fixture(scope="module")
def menu():
    return helper.token_menu()


@pytest.fixture(scope="module")
def smollm2():
    """Tokenizer and configuration of the real model."""
    return helper.smollm2()


def spelled(grammar, state=0, ids=()):
    """Every text that a grammar allows, by walking all its paths."""
    for token in np.flatnonzero(grammar.allowed[state]):
        if token == 0:
            yield helper.Letters().decode(ids)
        else:
            following = int(grammar.next_state[state, token])
            yield from spelled(grammar, following, (*ids, int(token)))


def plain(menu):
    """The grammar as NumPy arrays."""
    return menu.grammar._replace(
        allowed=np.asarray(menu.grammar.allowed),
        next_state=np.asarray(menu.grammar.next_state),
    )


def start_of(menu, prompt):
    return int(menu.grammar_for([prompt]).start[0])


def test_the_grammar_spells_the_menu_and_nothing_else(menu):
    grammar = plain(menu)
    texts = list(spelled(grammar, start_of(menu, "base")))
    assert len(texts) == len(set(texts))
    assert set(texts) == {menu.menu.text(c) for c in helper.every_choice()}
    encode, begin = helper.Letters().encode, menu.starts[None]
    assert all(menu.tree.accepts(begin, encode(text)) for text in texts)
    assert not menu.tree.accepts(begin, encode(texts[0][:-1]))
    assert not menu.tree.accepts(begin, encode(texts[0] + "x"))
    # Where parts meet, the automaton forgets what was chosen: it stays small.
    assert len(grammar.allowed) < sum(map(len, texts)) / 3


def test_after_a_script_the_grammar_spells_its_edits(menu):
    """Any parts of the form shown, at least one, in order; or a whole script."""
    whole = {menu.menu.text(c) for c in helper.every_choice()}
    lines = {"model": {}, "constant": {}}
    for text in whole:
        form, *rest = text.split("\n")
        for line in rest:
            lines[form.split()[1]].setdefault(line.split(":")[0], set()).add(line)
    rows, models = lines["model"]["rows"], lines["model"]["model"]
    both = {f"{row}\n{model}" for row in rows for model in models}
    wanted = {"model": rows | models | both, "constant": lines["constant"]["value"]}
    longest = 0
    for form, edits in wanted.items():
        text = next(t for t in sorted(whole) if t.startswith(f"form: {form}"))
        script = menu.menu.script(menu.menu.parse(text))
        attempt = Attempt(script, 1.0, score=0.5)
        start = start_of(menu, menu_prompt(loop_help.TASK, menu.menu, attempt))
        found = list(spelled(plain(menu), start))
        assert sorted(found) == sorted(edits | whole)
        longest = max(longest, *map(len, found))
        for answer in found:
            known = set(answer.split("\n")) <= set(text.split("\n"))
            if known:
                with pytest.raises(NoScript, match="no-op"):
                    part_edits.read(menu.menu, answer, script)
            else:
                assert part_edits.read(menu.menu, answer, script) != script
    assert menu.longest == 1 + longest


def test_different_masks_are_listed_once(menu):
    table, index = menu.masks
    np.testing.assert_array_equal(table[index], np.asarray(menu.grammar.allowed))
    assert len(table) < len(index)


def test_a_model_without_an_end_cannot_choose():
    endless = dataclasses.replace(helper.CONFIG, eos_token_id=())
    tokenizer = helper.Letters()
    tokenizer.eos_token_id = None
    with pytest.raises(LoopError, match="ends its answers"):
        TokenMenu(Menu(helper.FORMS), endless, tokenizer)


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
        # Dense tables of 5 bytes per state and word: at most 600 MB.
        assert len(menu.tree.states(*menu.starts.values())) <= 2400, short
        longest = ""
        for _ in range(10):
            text = menu.menu.text(draw(short, rng))
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert menu.tree.accepts(menu.starts[None], ids), text
            longest = max(longest, text, key=len)
        script = menu.menu.script(menu.menu.parse(longest))
        for attempt in (None, Attempt(script, 12.3, score=0.12345, rank=(88, 99))):
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
