"""The policy that knows nothing: draws, edits, resuming; no model is read."""

import loop_help
import menu_help as helper
import pytest

from experiments.config.errors import LoopError
from experiments.loop.algorithm import Loop
from experiments.menus import part_edits
from experiments.menus.menu import Menu
from experiments.menus.prompt import menu_prompt
from experiments.menus.task_menu import menu_of
from experiments.policies.models import describe, load
from experiments.policies.random_edits import NAME, RandomEdits
from rpg_tasks import get_task
from rpg_tasks.prompts import Attempt

MENU = Menu(helper.FORMS)
TASK = loop_help.TASK


def answers(policy, step, rows, prompts):
    (generation,) = policy.sample(step, rows, prompts)
    assert generation.rows == tuple(rows)
    assert not generation.seconds.any()
    return list(generation.texts)


def test_answers_depend_on_seed_step_row_and_prompt_alone(tmp_path):
    policy = RandomEdits(tmp_path, MENU, seed=3)
    base = menu_prompt(TASK, MENU)
    first = answers(policy, 2, range(6), [base] * 6)
    assert answers(policy, 2, [4, 1], [base] * 2) == [first[4], first[1]]
    assert answers(policy, 3, range(6), [base] * 6) != first
    other = RandomEdits(tmp_path, MENU, seed=4)
    assert answers(other, 2, range(6), [base] * 6) != first
    scripts = [part_edits.read(MENU, text, None) for text in first]
    prompts = [
        menu_prompt(TASK, MENU, Attempt(script, 1.0, score=0.5)) for script in scripts
    ]
    for text, script in zip(
        answers(policy, 3, range(6), prompts), scripts, strict=True
    ):
        assert part_edits.read(MENU, text, script) != script


def test_every_choice_of_the_menu_is_drawn(tmp_path):
    policy = RandomEdits(tmp_path, MENU)
    drawn = answers(policy, 0, range(600), [menu_prompt(TASK, MENU)] * 600)
    assert set(drawn) == {MENU.text(choice) for choice in helper.every_choice()}


def test_it_keeps_the_number_of_the_next_step(tmp_path):
    policy = RandomEdits(tmp_path, MENU)
    assert policy.restore() == 0
    policy.save(7, {"any": 1})
    assert RandomEdits(tmp_path, MENU).restore() == 7
    assert policy.learn(0, [], None) == {}


def test_a_loop_goes_without_a_model_and_resumes(tmp_path):
    def run(folder, until, resume=False):
        folder.mkdir(exist_ok=True)
        spec = loop_help.spec(NAME, chains=4, checkpoint_every=2)
        policy = RandomEdits(folder, MENU, seed=1)
        hooks = helper.hooks(policy, helper.token_menu(), count=len, most=10_000)
        with Loop(folder, spec, hooks, resume=resume, clock=helper.ticks()) as loop:
            while loop.next_step < until:
                loop.step()
        kept = ("step", "chain", "parent", "answer_sha256", "score")
        return [{k: r[k] for k in kept} for r in loop_help.records(folder)]

    whole = run(tmp_path / "whole", 5)
    run(tmp_path / "parts", 3)
    assert run(tmp_path / "parts", 5, resume=True) == whole
    scores = [r["score"] for r in whole]
    assert None not in scores
    assert all(r["parent"] for r in whole if r["step"])


def test_the_command_finds_it_by_name():
    info = describe(NAME)
    assert (info.parameters, info.millions) == (0, "no model")
    model = load(NAME, None, menus=True)
    assert model.fingerprint == "none"
    assert model.describer(get_task("insults"), 10_000)(None)
    with pytest.raises(LoopError, match="no menu"):
        menu_of("none-such")
