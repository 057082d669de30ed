"""The PPO step against a plain oracle, and what must not change its numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import llm_tiny as tiny
import numpy as np
import optax
import pytest

from rpg_jax.llm import make_ppo, objective, optim
from rpg_jax.llm.batch import make_batch
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import model_for

CONFIG = tiny.llama()
MODEL = model_for(CONFIG)
BASE = PPOHyper(
    learning_rate=1e-3,
    epochs=2,
    microbatch=4,
    kl_coef=0.1,
    entropy_coef=0.01,
    grad_clip=1e9,
    loss_length=6,
    remat=False,
)


@pytest.fixture(scope="module")
def params():
    return MODEL.init(jax.random.key(0))


@pytest.fixture(scope="module")
def batch(params):
    return tiny.random_batch(CONFIG, params)


def run(hyper, params, batch, steps=1):
    if steps > 1:  # the batch of the first step is rightly called stale later
        hyper = dataclasses.replace(hyper, mismatch_warn=1e9)
    ppo = make_ppo(CONFIG, hyper)
    state = ppo.init(jax.random.key(1), params)
    metrics = None
    for _ in range(steps):
        state, metrics = ppo.update(state, batch)
    return ppo, state, metrics


@pytest.fixture(scope="module")
def after(params, batch):
    """One update with the base hyper-parameters."""
    return run(BASE, params, batch)


def assert_trees_close(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


def assert_trees_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


# --- an oracle that makes all logits and knows nothing of microbatches ---------------


def oracle_log_prob(params, batch):
    tokens = jnp.concatenate([batch.prompt, batch.completion], axis=1)
    mask = jnp.concatenate([batch.prompt_mask, batch.completion_mask], axis=1)
    hidden, _ = MODEL.forward(params, tokens, mask)
    start = batch.prompt.shape[1] - 1
    log_p = jax.nn.log_softmax(MODEL.logits(params, hidden))[:, start:-1]
    chosen = jnp.take_along_axis(log_p, batch.completion[..., None], -1)[..., 0]
    return chosen, -jnp.sum(jnp.exp(log_p) * log_p, -1)


def oracle_advantage(batch):
    out = np.zeros(len(batch.reward))
    for i, r in enumerate(batch.reward):
        others = [
            x
            for j, x in enumerate(batch.reward)
            if j != i
            and batch.group[j] == batch.group[i]
            and batch.completion_mask[j].any()
        ]
        out[i] = r - np.mean(others) if others else 0.0
    return jnp.asarray(out, jnp.float32)[:, None]


def oracle_update(hyper, params, batch):
    advantage = oracle_advantage(batch)
    mask = jnp.asarray(batch.completion_mask)
    old, _ = jax.jit(lambda p: oracle_log_prob(p, batch))(params)
    optimizer = optax.adamw(
        hyper.learning_rate,
        weight_decay=hyper.weight_decay,
        mask=lambda tree: jax.tree_util.tree_map_with_path(
            lambda path, _: "norm" not in str(path), tree
        ),
    )

    def loss(p):
        log_prob, entropy = oracle_log_prob(p, batch)
        ratio = jnp.exp(log_prob - old)
        low, high = 1 - hyper.clip_eps, 1 + hyper.clip_eps
        surrogate = jnp.minimum(
            ratio * advantage, jnp.clip(ratio, low, high) * advantage
        )
        kl = jnp.exp(old - log_prob) - 1 + log_prob - old
        each = surrogate - hyper.kl_coef * kl + hyper.entropy_coef * entropy
        rows = jnp.sum(mask.any(axis=1), dtype=jnp.float32)
        return -jnp.sum(jnp.where(mask, each, 0)) / (rows * hyper.loss_length)

    @jax.jit
    def step(params, state):
        grads = jax.grad(loss)(params)
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, optim.global_norm(grads)

    state, norms = optimizer.init(params), []
    for _ in range(hyper.epochs):
        params, state, norm = step(params, state)
        norms.append(norm)
    return params, norms


def test_an_update_equals_the_plain_oracle(params, batch, after):
    want, norms = oracle_update(BASE, params, batch)
    _, state, metrics = after
    # Adam divides by the root of the second moment: compare changes, not weights.
    change = jax.tree.map(lambda a, b: a - b, state.params["policy"], params)
    expected = jax.tree.map(lambda a, b: a - b, want, params)
    assert_trees_close(change, expected, atol=2e-5)
    np.testing.assert_allclose(metrics.grad_norm, norms, rtol=1e-4)


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
