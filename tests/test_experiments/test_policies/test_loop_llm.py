"""The language-model policy in the loop: a tiny random model, scripted sandbox."""

import dataclasses
from concurrent.futures import Future

import jax
import llm_tiny
import loop_help as helper
import numpy as np
import pytest

from experiments.config.protocol import PAPER, SOUND, Learning, Sampling
from experiments.loop.algorithm import Loop
from experiments.policies.llm import LLMOptions, LLMPolicy, ppo_hyper
from experiments.records.drafts import Generation
from experiments.records.recorded import MEASURED
from rpg_jax.llm import ppo
from rpg_jax.llm.models import model_for

CONFIG = llm_tiny.llama(layers=1)
SAMPLING = Sampling(max_new_tokens=6, max_prompt_tokens=16)
OPTIONS = LLMOptions(group=2, microbatch=4, remat=False)


class Digits:
    """A tokenizer whose answers always hold a script: its tokens, as a comment."""

    chat_template = None
    eos_token_id = 0

    def encode(self, text, add_special_tokens=False):
        return [1 + len(text) % 7, 1 + text.count("e") % 7, 3]

    def get_vocab(self):
        return {}

    def batch_decode(self, rows, skip_special_tokens=True):
        return [self.decode(row) for row in rows]

    def decode(self, ids, skip_special_tokens=True):
        ids = [int(i) for i in ids]
        return helper.answer(0.5 + 0.05 * len(ids), 1.0 + sum(ids), salt=str(ids))


def _policy(folder, params):
    hyper = ppo_hyper(SOUND.learning, SAMPLING, OPTIONS, learning_rate=1e-2)
    return LLMPolicy(
        folder,
        CONFIG,
        params,
        Digits(),
        sampling=SAMPLING,
        hyper=hyper,
        options=OPTIONS,
    )


@pytest.fixture(scope="module")
def params():
    return model_for(CONFIG).init(jax.random.key(0))


def _steps(folder, params, until, *, resume=False, replay=None):
    policy = _policy(folder, params)
    try:
        hooks = helper.hooks(policy)
        with Loop(
            folder, helper.spec(chains=4), hooks, resume=resume, replay=replay
        ) as loop:
            while loop.next_step < until:
                loop.step()
    finally:
        policy.close()
    return [
        {k: v for k, v in m.items() if k not in MEASURED}
        for m in helper.records(folder, "metrics.jsonl")
    ]


@pytest.mark.slow
def test_it_trains_and_replays(tmp_path, params):
    """Replay samples anew: answers, prices, updates are those on record."""
    one, two = tmp_path / "a", tmp_path / "b"
    one.mkdir()
    two.mkdir()
    _steps(one, params, 2)
    first = _steps(one, params, 3, resume=True)
    assert len(first) == 3
    assert all(m["learn"]["grad_norm"] > 0 for m in first)
    assert all(np.isfinite(list(m["learn"].values())).all() for m in first)
    assert _steps(two, params, 3, replay=one) == first
    assert helper.records(one) == helper.records(two)


def test_the_advantage_on_record_is_that_of_the_update(tmp_path, params, monkeypatch):
    """Weights of the arm and a lost attempt included; with a critic none is claimed."""
    used = []
    real = ppo._advantages

    def watched(setup, batch, fixed):
        out = real(setup, batch, fixed)
        # The same for each token of a row.
        used.append(np.asarray(out.advantage)[:, 0])
        return out

    monkeypatch.setattr(ppo, "_advantages", watched)

    def execute(run_id, script):
        record, chain = helper.run_record(run_id, script), int(run_id[-3:])
        # Equally long answers have equal scores; these differ.
        score = str(0.6 + 0.1 * chain).encode()
        record = dataclasses.replace(record, submission_bytes=score)
        if chain == 1:
            record = dataclasses.replace(record, status="sandbox_error")
        future = Future()
        future.set_result(record)
        return future

    policy = _policy(tmp_path, params)
    try:
        hooks = helper.hooks(policy, execute=execute)
        spec = helper.spec("duration-weighted", chains=4)
        with Loop(tmp_path, spec, hooks) as loop:
            metrics = loop.step()
    finally:
        policy.close()
    recorded = np.array(metrics["advantage"])
    assert recorded[1] == 0
    assert np.abs(recorded).max() > 1e-3
    np.testing.assert_allclose(used[0][:4], recorded, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("learning", [PAPER.learning, Learning(advantage="critic")])
def test_a_critics_advantage_is_not_on_record(tmp_path, learning):
    protocol = dataclasses.replace(SOUND, learning=learning)
    hooks = helper.hooks(helper.ScriptedPolicy(tmp_path))
    with Loop(tmp_path, helper.spec(protocol=protocol), hooks) as loop:
        assert "advantage" not in loop.step()


def test_scripts_of_a_group_start_before_the_next_group_is_sampled(tmp_path, params):
    events = []
    policy = _policy(tmp_path, params)  # groups of two

    def answer(key, rows, prompts):
        events.append(("sample", *rows))
        texts = tuple(helper.answer(0.6, 1.0, salt=str(row)) for row in rows)
        return Generation(tuple(rows), texts, np.ones(len(rows)), {})

    def execute(run_id, script):
        events.append(("execute", int(run_id[-3:])))
        return helper.execute(run_id, script)

    policy._answer, policy.learn = answer, lambda *_: {}
    hooks = helper.hooks(policy, execute=execute)
    spec = helper.spec(chains=4, checkpoint_every=10)
    with Loop(tmp_path, spec, hooks) as loop:
        loop.step()
    policy.close()
    assert events == [
        *(("sample", 0, 1), ("execute", 0), ("execute", 1)),
        *(("sample", 2, 3), ("execute", 2), ("execute", 3)),
    ]


def test_hyper_parameters_of_the_presets():
    sound = ppo_hyper(SOUND.learning, SOUND.sampling, OPTIONS)
    paper = ppo_hyper(PAPER.learning, PAPER.sampling, OPTIONS)
    assert (sound.kl_in_reward, sound.whiten) == (False, False)
    assert sound.advantage == "given"  # the loop's, capped where nothing is gained
    assert (paper.advantage, paper.kl_in_reward, paper.whiten) == ("critic", True, True)
    assert (paper.temperature, paper.loss_length) == (0.7, 2500)
    assert paper.learning_rate == 1e-6
