"""The PPO step's warnings, and the pieces of its objective."""

import dataclasses

import jax
import jax.numpy as jnp
import llm_tiny as tiny
import numpy as np
import pytest
from llm_ppo_help import BASE, CONFIG, MODEL, assert_trees_equal, oracle_advantage, run

from rpg_jax.llm import make_ppo, objective


@pytest.fixture(scope="module")
def params():
    return MODEL.init(jax.random.key(0))


@pytest.fixture(scope="module")
def batch(params):
    return tiny.random_batch(CONFIG, params)


def test_a_sampler_that_is_not_the_policy_warns(params, batch):
    wrong = batch._replace(sampler_log_prob=batch.sampler_log_prob - 0.01)
    with pytest.warns(RuntimeWarning, match="differ from the trainer's by 0.01"):
        *_, metrics = run(BASE, params, wrong)
    longest = batch.completion_mask.sum(axis=1).max()
    np.testing.assert_allclose(metrics.mismatch_sequence, 0.01 * longest, rtol=1e-3)


def test_a_gradient_that_is_not_finite_changes_nothing(params, batch):
    bad = {**params, "norm": params["norm"].at[0].set(jnp.nan)}
    ppo = make_ppo(CONFIG, BASE)
    state = ppo.init(jax.random.key(1), bad)
    with pytest.warns(RuntimeWarning) as caught:
        new, metrics = ppo.update(state, batch)
    assert any("skipped" in str(w.message) for w in caught)
    assert_trees_equal(new.params, state.params)
    assert_trees_equal(new.opt_state, state.opt_state)
    assert metrics.skipped.sum() == 2


def test_a_batch_without_a_row_changes_nothing(params, batch):
    empty = batch._replace(completion_mask=np.zeros_like(batch.completion_mask))
    ppo = make_ppo(CONFIG, BASE)
    state = ppo.init(jax.random.key(1), params)
    with pytest.warns(RuntimeWarning, match="No row"):
        new, metrics = ppo.update(state, empty)
    assert_trees_equal(new.params, state.params)
    assert int(new.step) == 1
    assert metrics.summary()["rows"] == 0


# --- the pieces of the objective ----------------------------------------------------


@pytest.mark.slow
def test_kl_price_holds_the_policy_back_and_entropy_price_spreads_it(params, batch):
    def last(**change):
        hyper = dataclasses.replace(BASE, learning_rate=3e-3, epochs=1, **change)
        *_, metrics = run(hyper, params, batch, steps=8)
        return metrics

    free = last(kl_coef=1e-9, entropy_coef=0.0)
    held = last(kl_coef=10.0, entropy_coef=0.0)
    spread = last(kl_coef=1e-9, entropy_coef=1.0)
    assert held.kl_ref[0] < 0.2 * free.kl_ref[0]
    assert spread.entropy[0] > free.entropy[0] + 0.02


@pytest.mark.slow
def test_weight_scales_the_advantage_of_its_row(params, batch):
    hyper = dataclasses.replace(
        BASE, kl_coef=0.0, entropy_coef=0.0, epochs=1, weight_decay=0.0
    )
    double = batch._replace(weight=2 * batch.weight)
    *_, one = run(hyper, params, batch)
    *_, two = run(hyper, params, double)
    np.testing.assert_allclose(two.grad_norm, 2 * one.grad_norm, rtol=1e-5)


def test_share_of_weights_changed_is_judged_in_the_compute_type(params, batch):
    hyper = dataclasses.replace(BASE, learning_rate=1e-6, compute_dtype="bfloat16")
    *_, metrics = run(hyper, params, batch)
    assert metrics.changed[0] > 0.5
    assert 0 < metrics.changed_compute[0] < 0.1


@pytest.mark.slow
def test_the_critic_learns_the_return_and_leaves_the_policy_alone(params, batch):
    constant = batch._replace(reward=np.full_like(batch.reward, 0.4))
    hyper = dataclasses.replace(
        BASE,
        advantage="critic",
        critic_learning_rate=0.02,
        mismatch_warn=1e9,
        kl_coef=0.0,
        entropy_coef=0.0,
        weight_decay=0.0,
    )
    mask = batch.completion_mask
    for trunk in ("shared", "own"):
        hyper = dataclasses.replace(hyper, critic_trunk=trunk)
        ppo, state, metrics = run(hyper, params, constant)
        np.testing.assert_allclose(metrics.value_loss[0], 0.4**2 / 2, rtol=1e-5)
        for _ in range(15):
            state, metrics = ppo.update(state, constant)
        value = np.asarray(ppo.score(state, constant).value)[mask]
        assert np.sqrt(np.mean((value - 0.4) ** 2)) < 0.1  # from 0.4 at the start
    # With values of 0 and the critic frozen the advantage is the return itself.
    frozen = dataclasses.replace(hyper, critic_trunk="shared", epochs=1)
    slow = dataclasses.replace(frozen, critic_learning_rate=1e-12)
    a, b = run(frozen, params, constant)[1], run(slow, params, constant)[1]
    assert_trees_equal(a.params["policy"], b.params["policy"])


def fixed_of(batch, **values):
    blank = jnp.zeros(batch.completion.shape)
    return objective.Fixed(blank, blank, blank, blank, blank)._replace(**values)


def test_advantages_against_plain_loops(batch):
    """Leave-one-out, critic and KL in the reward, by hand on one batch."""
    rng = np.random.default_rng(0)
    shape, mask = batch.completion.shape, np.array(batch.completion_mask)
    mask[5] = False
    batch = batch._replace(completion_mask=mask)
    old, ref, value = (
        jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(3)
    )
    fixed = fixed_of(batch, old_log_prob=old, ref_log_prob=ref, old_value=value)

    loo = objective.advantages(BASE, batch, fixed).advantage
    want = np.where(mask, oracle_advantage(batch), 0)
    np.testing.assert_allclose(loo, want, atol=1e-6)

    paid = dataclasses.replace(BASE, kl_in_reward=True, kl_coef=0.5)
    charge = 0.5 * np.where(mask, old - ref, 0)
    charged = batch._replace(reward=batch.reward - charge.sum(axis=1))
    got = objective.advantages(paid, batch, fixed).advantage
    want = np.where(mask, oracle_advantage(charged), 0)
    np.testing.assert_allclose(got, want, atol=1e-5)

    critic = dataclasses.replace(paid, advantage="critic")
    got = objective.advantages(critic, batch, fixed)
    for i, length in enumerate(mask.sum(axis=1)):
        for t in range(length):
            to_go = batch.reward[i] - charge[i, t:].sum()
            np.testing.assert_allclose(got.target[i, t], to_go, atol=1e-5)
            np.testing.assert_allclose(
                got.advantage[i, t], to_go - value[i, t], atol=1e-5
            )

    white = dataclasses.replace(critic, whiten=True)
    got = np.asarray(objective.advantages(white, batch, fixed).advantage)[mask]
    np.testing.assert_allclose([got.mean(), got.std()], [0, 1], atol=1e-4)


def test_given_advantages_are_the_rewards_as_they_are(batch):
    mask = np.array(batch.completion_mask)
    given = dataclasses.replace(BASE, advantage="given")
    got = objective.advantages(given, batch, fixed_of(batch)).advantage
    want = np.asarray(batch.reward * batch.weight)[:, None] * mask
    np.testing.assert_allclose(got, want, rtol=1e-6)
