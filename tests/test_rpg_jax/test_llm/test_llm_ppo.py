"""The PPO step against a plain oracle, and what must not change its numbers."""

import dataclasses

import jax
import llm_tiny as tiny
import numpy as np
import pytest
from llm_ppo_help import (
    BASE,
    CONFIG,
    MODEL,
    assert_trees_close,
    assert_trees_equal,
    oracle_update,
    run,
)

from rpg_jax.llm import make_ppo
from rpg_jax.llm.batch import make_batch


@pytest.fixture(scope="module")
def params():
    return MODEL.init(jax.random.key(0))


@pytest.fixture(scope="module")
def batch(params):
    return tiny.random_batch(CONFIG, params)


@pytest.fixture(scope="module")
def after(params, batch):
    """One update with the base hyper-parameters."""
    return run(BASE, params, batch)


def test_an_update_equals_the_plain_oracle(params, batch, after):
    want, norms = oracle_update(BASE, params, batch)
    _, state, metrics = after
    # Adam divides by the root of the second moment: compare changes, not weights.
    change = jax.tree.map(lambda a, b: a - b, state.params["policy"], params)
    expected = jax.tree.map(lambda a, b: a - b, want, params)
    assert_trees_close(change, expected, atol=2e-5)
    np.testing.assert_allclose(metrics.grad_norm, norms, rtol=1e-4)


def _gradient_norm(params, batch, **changes):
    """Of one pass without a penalty or a bonus."""
    hyper = dataclasses.replace(
        BASE, epochs=1, kl_coef=0.0, entropy_coef=0.0, mismatch_warn=1e9, **changes
    )
    return float(run(hyper, params, batch)[2].grad_norm[0])


def test_truncated_importance_sampling_weighs_tokens_by_their_ratio(params, batch):
    ppo = make_ppo(CONFIG, BASE)
    scores = ppo.score(ppo.init(jax.random.key(1), params), batch)
    trainer = np.where(batch.completion_mask, scores.log_prob, 0.0)
    # What was sampled at half the trainer's probability counts twice, or as the cap.
    half = np.where(batch.completion_mask, trainer - np.log(2), 0.0)
    batch = batch._replace(sampler_log_prob=half)
    plain = _gradient_norm(params, batch)
    for cap, factor in ((5.0, 2.0), (1.5, 1.5)):
        found = _gradient_norm(params, batch, importance_cap=cap)
        assert found == pytest.approx(factor * plain, rel=1e-4)
    # A token alone: the rows whose first token is heavier than the others.
    half[:, 1:] = trainer[:, 1:]
    uneven = _gradient_norm(params, batch, importance_cap=5.0)
    assert uneven != pytest.approx(plain, rel=1e-3)
    assert uneven < 2 * plain


# --- invariants ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {},
        pytest.param(
            {"advantage": "critic", "kl_in_reward": True, "whiten": True},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"lora_rank": 2, "compute_dtype": "bfloat16"}, marks=pytest.mark.slow
        ),
    ],
    ids=["loo", "critic", "lora-bf16"],
)
def test_the_ratio_of_the_first_pass_is_exactly_one(params, batch, change):
    *_, metrics = run(dataclasses.replace(BASE, **change), params, batch)
    assert metrics.ratio_mean[0] == 1.0
    assert metrics.ratio_max[0] == 1.0
    assert metrics.clip_share[0] == 0.0
    assert metrics.approx_kl[0] == 0.0
    assert metrics.ratio_max[1] != 1.0
    assert metrics.nonfinite.sum() == metrics.skipped.sum() == 0


def test_trainer_and_sampler_agree_in_float32(params, batch, after):
    ppo, _, metrics = after
    assert metrics.mismatch_mean <= metrics.mismatch_max < 5e-4
    scores = ppo.score(ppo.init(jax.random.key(1), params), batch)
    mask = batch.completion_mask
    gap = np.asarray(scores.log_prob)[mask] - batch.sampler_log_prob[mask]
    np.testing.assert_allclose(np.abs(gap).max(), metrics.mismatch_max, atol=1e-6)


def test_microbatches_add_up_to_the_batch(params, batch, after):
    _, whole, info = run(dataclasses.replace(BASE, microbatch=8), params, batch)
    _, parts, metrics = after
    assert_trees_close(parts.params, whole.params, atol=2e-5)
    for name in ("loss", "entropy", "kl_ref", "approx_kl", "grad_norm"):
        np.testing.assert_allclose(
            getattr(metrics, name), getattr(info, name), rtol=1e-3, atol=1e-7
        )
    assert metrics.tokens == batch.completion_mask.sum()
    assert metrics.rows == 8


def test_an_update_is_a_function_of_state_and_batch(params, batch, after):
    _, again, _ = run(BASE, params, batch)
    _, state, _ = after
    assert_trees_equal(again.params, state.params)
    assert_trees_equal(again.opt_state, state.opt_state)
    assert jax.random.key_data(again.key).tolist() == (
        jax.random.key_data(state.key).tolist()
    )
    assert int(state.step) == 1


def test_rows_that_are_out_change_nothing(params, batch, after):
    """Seven rows, and the same seven with a dead row full of garbage."""
    seven = jax.tree.map(lambda x: x[:7], batch)
    mask = batch.completion_mask.copy()
    mask[7] = False
    reward = batch.reward.copy()
    reward[7] = np.nan
    eight = make_batch(
        *(batch.prompt, batch.prompt_mask, batch.completion, mask),
        *(np.where(mask, batch.sampler_log_prob, np.nan), reward),
        group=batch.group,
    )
    a, b = run(BASE, params, seven), run(BASE, params, eight)
    assert_trees_close(a[1].params, b[1].params, atol=1e-6)
    assert a[2].rows == b[2].rows == 7
    np.testing.assert_allclose(a[2].reward_mean, seven.reward.mean(), rtol=1e-6)


def test_padding_order_and_company_change_no_row(params, batch, after):
    ppo, *_ = after
    state = ppo.init(jax.random.key(1), params)
    wide = batch._replace(
        prompt=np.pad(batch.prompt, ((0, 0), (2, 0))),
        prompt_mask=np.pad(batch.prompt_mask, ((0, 0), (2, 0))),
        **{
            name: np.pad(getattr(batch, name), ((0, 0), (0, 3)))
            for name in ("completion", "completion_mask", "sampler_log_prob")
        },
    )
    got, want = ppo.score(state, wide), ppo.score(state, batch)
    mask = batch.completion_mask
    for g, w in zip(got[:2], want[:2], strict=True):
        np.testing.assert_allclose(
            np.asarray(g)[:, :6][mask], np.asarray(w)[mask], atol=2e-6
        )
    back = jax.tree.map(lambda x: x[::-1], batch)
    few = jax.tree.map(lambda x: x[:3], batch)
    for other, rows in ((back, slice(None, None, -1)), (few, slice(3))):
        got = np.asarray(ppo.score(state, other).log_prob)
        np.testing.assert_allclose(
            got[mask[rows]], np.asarray(want.log_prob)[rows][mask[rows]], atol=2e-6
        )


def test_minibatches_take_more_steps_and_keep_rows_in_place(params, batch):
    """Old log-probabilities must follow their rows through the shuffle: at a tiny step
    size every ratio stays near 1, which a row's exchange would break."""
    hyper = dataclasses.replace(BASE, minibatches=2, epochs=3, learning_rate=1e-7)
    _, state, metrics = run(hyper, params, batch)
    assert int(state.opt_state["policy"][1][0].count) == 6
    assert abs(metrics.ratio_max - 1).max() < 1e-3
    assert metrics.approx_kl[-1] > 0
    assert metrics.mismatch_max < 5e-4


@pytest.mark.slow
def test_max_kl_ends_the_passes_early(params, batch):
    hyper = dataclasses.replace(BASE, epochs=6, learning_rate=0.02, max_kl=1e-3)
    *_, metrics = run(hyper, params, batch)
    assert 2 <= len(metrics.loss) < 6
    assert metrics.approx_kl[-1] > 1e-3 >= metrics.approx_kl[-2]


@pytest.mark.slow
def test_donation_gives_the_same_numbers(params, batch, after):
    ppo = make_ppo(CONFIG, BASE, donate=True)
    state = ppo.init(jax.random.key(1), params)
    state, _ = ppo.update(state, batch)
    assert_trees_equal(state.params, after[1].params)


# --- temperature and logit masks ----------------------------------------------------


@pytest.mark.slow
def test_temperature_and_masks_are_those_of_the_sampler(params):
    allowed = np.ones((2, CONFIG.vocab_size), bool)
    allowed[1, 4:] = False
    batch = tiny.random_batch(CONFIG, params, temperature=0.5)
    hyper = dataclasses.replace(BASE, temperature=0.5)
    *_, metrics = run(hyper, params, batch)
    assert metrics.mismatch_max < 5e-4

    batch = tiny.random_batch(CONFIG, params, allowed=allowed[1])
    assert batch.completion[batch.completion_mask].max() < 4
    dense = make_batch(
        *batch[:6], logit_mask=np.tile(allowed[1], (*batch.completion.shape, 1))
    )
    for masked in (batch, dense):
        *_, metrics = run(BASE, params, masked)
        assert metrics.mismatch_max < 5e-4
        assert metrics.entropy[0] <= np.log(4) + 1e-6


# --- things that must warn ----------------------------------------------------------
