"""The real sampler and the trainer, on a tiny Qwen3.5: one policy in both."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax.llm import batch_from_completions, choice_grammar, left_pad, make_ppo
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import model_for
from rpg_jax.llm.qwen3_5 import Qwen35Config
from rpg_jax.llm.sampling import sample

CONFIG = Qwen35Config(
    vocab_size=24,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    linear_num_key_heads=1,
    linear_num_value_heads=2,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    layer_types=("linear_attention",) * 3 + ("full_attention",),
    partial_rotary_factor=0.5,
    tie_word_embeddings=True,
    initializer_range=0.2,
    pad_token_id=1,
    eos_token_id=(1, 2),  # the first one is the pad too
)
PROMPTS, MASK = left_pad([[5, 6, 7], [8], [9, 10, 11, 12, 13]], pad_id=1)
MENU = [[4, 5, 6], [4, 7], [9]]
HYPER = PPOHyper(
    learning_rate=3e-3, microbatch=6, kl_coef=0.01, remat=False, loss_length=20
)


@pytest.fixture(scope="module")
def params():
    return model_for(CONFIG).init(jax.random.key(0))


def completions(params, **options):
    return sample(
        jax.random.key(5),
        params,
        CONFIG,
        PROMPTS,
        MASK,
        max_new_tokens=10,
        num_samples=2,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, {"lora_rank": 2}], ids=["full", "lora"])
def test_two_steps_of_sampling_and_training_agree_to_rounding(params, change):
    ppo = make_ppo(CONFIG, dataclasses.replace(HYPER, temperature=0.8, **change))
    state = ppo.init(jax.random.key(1), params)
    ends = set()
    for _ in range(2):
        done = completions(ppo.policy_params(state), temperature=0.8)
        ends |= set(np.asarray(done.finished).tolist())
        batch = batch_from_completions(PROMPTS, MASK, done, np.arange(6.0))
        assert batch.prompt.shape == (6, 16)  # in a bucket
        assert batch.completion.shape == done.tokens.shape
        assert batch.group.tolist() == [0, 0, 1, 1, 2, 2]
        state, metrics = ppo.update(state, batch)
        assert metrics.mismatch_max < 5e-4
        assert metrics.ratio_max[0] == 1.0
        assert metrics.tokens == int(np.sum(done.mask))
    assert ends == {True, False}  # rows that stopped and rows that were cut off
    assert metrics.kl_ref[0] > 0  # the policy has left the start by now


@pytest.mark.slow
def test_a_menu_is_masked_in_the_trainer_as_it_was_in_the_sampler(params):
    grammar = choice_grammar(MENU, CONFIG.vocab_size, stop_id=2)
    done = completions(params, logit_mask=grammar)
    assert done.finished.all()
    batch = batch_from_completions(PROMPTS, MASK, done, np.zeros(6), trim=True)
    assert batch.completion.shape == done.tokens.shape  # within one bucket
    ppo = make_ppo(CONFIG, HYPER)
    _, metrics = ppo.update(ppo.init(jax.random.key(1), params), batch)
    assert metrics.mismatch_max < 5e-4
    assert metrics.entropy[0] < np.log(2) + 1e-6  # never more than two ways to go on
    unmasked = batch._replace(mask_table=None, mask_index=None)
    with pytest.warns(RuntimeWarning, match="logit masks"):
        ppo.update(ppo.init(jax.random.key(1), params), unmasked)


@pytest.mark.slow
def test_bfloat16_mismatch_is_measured_and_within_its_band(params):
    hyper = dataclasses.replace(HYPER, compute_dtype="bfloat16", remat=True)
    ppo = make_ppo(CONFIG, hyper)
    state = ppo.init(jax.random.key(1), params)
    view = ppo.policy_params(state)
    assert view["embed"].dtype == jnp.bfloat16
    done = completions(view, compute_dtype=jnp.bfloat16)
    batch = batch_from_completions(PROMPTS, MASK, done, np.arange(6.0))
    _, metrics = ppo.update(state, batch)
    assert 1e-5 < metrics.mismatch_mean < 0.05
    assert metrics.ratio_max[0] == 1.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_gradient_steps_end(params):
    """A deadlock in a batched solve would hang here; the watchdog is the timeout."""
    hyper = dataclasses.replace(HYPER, epochs=4, kl_coef=0.0, learning_rate=1e-4)
    ppo = make_ppo(CONFIG, hyper)
    state = ppo.init(jax.random.key(1), params)
    batch = batch_from_completions(PROMPTS, MASK, completions(params), np.arange(6.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the batch grows stale
        for _ in range(50):
            state, metrics = ppo.update(state, batch)
    assert int(state.opt_state["policy"][1][0].count) == 200
    assert np.isfinite(metrics.loss).all()
