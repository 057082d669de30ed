"""Losses and advantages against scalar float64 loops, and with garbage under masks."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax import losses

B, T = 4, 7


# Compiled once for all tests: eager gradients would compile every operation alone.
ppo = jax.jit(jax.value_and_grad(losses.ppo_clip_loss, has_aux=True))
value_loss = jax.jit(jax.value_and_grad(losses.value_clip_loss))
gae = jax.jit(losses.gae)
whiten = jax.jit(losses.whiten)
KL = {
    kind: jax.jit(
        lambda a, b, m, kind=kind: (
            losses.kl_estimate(a, b, m, kind=kind),
            jax.grad(lambda x: losses.kl_estimate(x, b, m, kind=kind).sum())(a),
        )
    )
    for kind in ("k1", "k2", "k3")
}


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(1)
    lengths = [7, 4, 1, 0]
    mask = np.array([[t < n for t in range(T)] for n in lengths])
    old = rng.normal(-2.0, 0.5, (B, T))
    return {
        "log_prob": (old + rng.normal(0, 0.4, (B, T))).astype(np.float32),
        "old": old.astype(np.float32),
        "advantage": rng.normal(0, 1, (B, T)).astype(np.float32),
        "mask": mask,
    }


def reference_ppo(log_prob, old, advantage, mask, low, high, normalizer):
    """The surrogate and its gradient in log_prob, token by token."""
    total, clipped, n = 0.0, 0, 0
    grad = np.zeros(log_prob.shape)
    divisor = normalizer or max(mask.sum(), 1)
    for i, j in zip(*np.nonzero(mask), strict=True):
        a = float(advantage[i, j])
        w = math.exp(float(log_prob[i, j]) - float(old[i, j]))
        inside = min(max(w, 1 - low), 1 + high)
        n += 1
        if inside * a < w * a:
            clipped += 1
            total -= inside * a
        else:
            total -= w * a
            grad[i, j] = -w * a / divisor
    return total / divisor, grad, clipped / max(n, 1)


@pytest.mark.parametrize(
    ("high", "normalizer"), [(None, None), (0.28, None), (None, B * 32.0)]
)
def test_ppo_loss_gradient_and_clipping(batch, high, normalizer):
    args = [jnp.asarray(batch[k]) for k in ("log_prob", "old", "advantage", "mask")]
    loss_fn = functools.partial(
        losses.ppo_clip_loss, clip_eps=0.2, clip_eps_high=high, normalizer=normalizer
    )
    (loss, info), grad = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(*args)
    want, want_grad, fraction = reference_ppo(
        *batch.values(), 0.2, 0.2 if high is None else high, normalizer
    )
    np.testing.assert_allclose(loss, want, rtol=1e-5)
    np.testing.assert_allclose(grad, want_grad, rtol=1e-5, atol=1e-8)
    assert 0 < fraction < 1
    np.testing.assert_allclose(info.clip_fraction, fraction, rtol=1e-6)
    w = np.exp(batch["log_prob"].astype(float) - batch["old"])[batch["mask"]]
    np.testing.assert_allclose(info.ratio_mean, w.mean(), rtol=1e-5)
    np.testing.assert_allclose(info.ratio_max, w.max(), rtol=1e-5)
    np.testing.assert_allclose(info.approx_kl, (w - 1 - np.log(w)).mean(), rtol=1e-4)
    assert info.nonfinite == 0


def test_ppo_gradient_at_the_old_policy_is_the_policy_gradient(batch):
    old, advantage, mask = (jnp.asarray(batch[k]) for k in ("old", "advantage", "mask"))
    _, grad = ppo(old, old, advantage, mask)
    want = -batch["advantage"] * batch["mask"] / batch["mask"].sum()
    np.testing.assert_allclose(grad, want, rtol=1e-6)


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_masked_garbage_touches_neither_loss_nor_gradient(batch, garbage):
    mask = jnp.asarray(batch["mask"])
    clean = [jnp.asarray(batch[k]) for k in ("log_prob", "old", "advantage")]
    dirty = [jnp.where(mask, x, garbage) for x in clean]
    for x in (0, 1):  # each side alone, so that inf - inf does not hide one of them
        args = [dirty[i] if i in (x, 2) else clean[i] for i in range(3)]
        (loss, info), grad = ppo(*args, mask)
        (want, _), want_grad = ppo(*clean, mask)
        assert loss == want
        assert info.nonfinite == 0
        np.testing.assert_array_equal(grad, want_grad)
        for kl in KL.values():
            got, want = kl(*args[:2], mask), kl(*clean[:2], mask)
            assert np.isfinite(got[1]).all()
            np.testing.assert_array_equal(got[0], want[0])
    got, want = value_loss(*dirty, mask), value_loss(*clean, mask)
    assert got[0] == want[0]
    np.testing.assert_array_equal(got[1], want[1])
    for got, want in zip(gae(*dirty[:2], mask), gae(*clean[:2], mask), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(whiten(dirty[0], mask), whiten(clean[0], mask))


def test_nonfinite_inputs_under_the_mask_are_left_out_and_counted(batch):
    log_prob = jnp.asarray(batch["log_prob"]).at[0, 0].set(jnp.nan)
    old = jnp.asarray(batch["old"]).at[0, 1].set(-jnp.inf)
    advantage = jnp.asarray(batch["advantage"]).at[0, 2].set(jnp.inf)
    mask = jnp.asarray(batch["mask"])
    (loss, info), grad = ppo(log_prob, old, advantage, mask)
    clean = [jnp.asarray(batch[k]) for k in ("log_prob", "old", "advantage")]
    (want, _), want_grad = ppo(*clean, mask.at[0, :3].set(False))
    assert info.nonfinite == 3
    assert loss == want
    np.testing.assert_array_equal(grad, want_grad)


def test_huge_ratios_stay_finite():
    log_prob = jnp.array([[500.0, -500.0, 500.0, -500.0]])
    advantage = jnp.array([[1.0, 1.0, -1.0, -1.0]])
    (loss, info), grad = ppo(
        log_prob, jnp.zeros((1, 4)), advantage, jnp.ones((1, 4), bool)
    )
    assert np.isfinite([loss, *info[:4]]).all()
    assert np.isfinite(grad).all()


def test_an_empty_mask_gives_zero_loss_and_gradient(batch):
    args = [jnp.asarray(batch[k]) for k in ("log_prob", "old", "advantage")]
    none = jnp.zeros((B, T), bool)
    (loss, _), grad = ppo(*args, none)
    assert loss == 0
    assert not grad.any()
    assert not losses.whiten(args[0], none).any()


def test_one_advantage_per_sequence_broadcasts(batch):
    lp, old, mask = (jnp.asarray(batch[k]) for k in ("log_prob", "old", "mask"))
    column = jnp.asarray(batch["advantage"])[:, :1]
    a, _ = losses.ppo_clip_loss(lp, old, column, mask)
    b, _ = losses.ppo_clip_loss(lp, old, jnp.tile(column, (1, T)), mask)
    assert a == b


def test_bfloat16_inputs_are_computed_in_float32(batch):
    args = [
        jnp.asarray(batch[k], jnp.bfloat16) for k in ("log_prob", "old", "advantage")
    ]
    loss, _ = losses.ppo_clip_loss(*args, jnp.asarray(batch["mask"]))
    wide, _ = losses.ppo_clip_loss(
        *(x.astype(jnp.float32) for x in args), jnp.asarray(batch["mask"])
    )
    assert loss.dtype == jnp.float32
    assert loss == wide


def test_k3_is_accurate_at_every_size():
    x = np.array([0, 1e-6, -1e-4, 3e-3, -0.049, 0.051, 0.7, -3, 9], np.float32)
    got, slope = KL["k3"](jnp.asarray(x), jnp.zeros(9), jnp.ones(9, bool))
    for i, value in enumerate(x.astype(float)):
        if abs(value) < 0.1:  # the closed form cancels even in float64
            terms = ((-value) ** k / math.factorial(k) for k in range(2, 14))
            want = math.fsum(terms)
        else:
            want = math.expm1(-value) + value
        np.testing.assert_allclose(got[i], want, rtol=1e-5, atol=0)
        np.testing.assert_allclose(slope[i], -math.expm1(-value), rtol=1e-4, atol=1e-12)


def test_k3_pulls_back_however_far_the_policy_has_gone():
    x = jnp.asarray([-1000.0, -21.0, 21.0, 1000.0])
    got, slope = KL["k3"](x, jnp.zeros(4), jnp.ones(4, bool))
    assert np.isfinite(got).all()
    assert (slope[:2] < -1e8).all()
    np.testing.assert_allclose(slope[2:], 1.0)
    np.testing.assert_allclose(got[2:], x[2:] - 1, rtol=1e-6)


def test_kl_estimators_average_to_the_exact_divergence():
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(6))
    q = 0.7 * p + 0.3 * rng.dirichlet(np.ones(6))
    exact = float((p * np.log(p / q)).sum())
    log_p, log_q = (jnp.log(jnp.asarray(v, jnp.float32)) for v in (p, q))
    mask = jnp.ones(6, bool)
    for kind in ("k1", "k3"):  # the expectation under p, exactly
        kl = losses.kl_estimate(log_p, log_q, mask, kind=kind)
        np.testing.assert_allclose((p * np.asarray(kl)).sum(), exact, rtol=1e-4)
    assert (losses.kl_estimate(log_p, log_q, mask) >= 0).all()
    # k2's gradient under samples of p is the gradient of the KL in p's logits.
    logits = jnp.asarray(rng.normal(size=6), jnp.float32)

    def k2(z):
        lp = jax.nn.log_softmax(z)
        weight = jax.lax.stop_gradient(jnp.exp(lp))
        return (weight * losses.kl_estimate(lp, log_q, mask, kind="k2")).sum()

    def divergence(z):
        lp = jax.nn.log_softmax(z)
        return (jnp.exp(lp) * (lp - log_q)).sum()

    np.testing.assert_allclose(
        jax.grad(k2)(logits), jax.grad(divergence)(logits), rtol=1e-4, atol=1e-6
    )


def test_kl_refuses_an_unknown_kind():
    with pytest.raises(ValueError, match="k1, k2 or k3"):
        losses.kl_estimate(jnp.zeros(1), jnp.zeros(1), jnp.ones(1), kind="k4")


def test_value_loss_is_the_larger_of_the_two_errors(batch):
    v, old, target = (
        batch["log_prob"] * 2,
        batch["old"],
        batch["advantage"] * 3,
    )
    mask = batch["mask"]
    f = jax.value_and_grad(functools.partial(losses.value_clip_loss, clip_eps=0.3))
    loss, grad = f(*(jnp.asarray(x) for x in (v, old, target, mask)))
    total, want, sides = 0.0, np.zeros((B, T)), set()
    for i, j in zip(*np.nonzero(mask), strict=True):
        x, o, r = float(v[i, j]), float(old[i, j]), float(target[i, j])
        near = o + min(max(x - o, -0.3), 0.3)
        sides.add((near - r) ** 2 > (x - r) ** 2)
        if (near - r) ** 2 > (x - r) ** 2:
            total += (near - r) ** 2 / 2
        else:
            total += (x - r) ** 2 / 2
            want[i, j] = x - r
    assert sides == {True, False}
    np.testing.assert_allclose(loss, total / mask.sum(), rtol=1e-5)
    np.testing.assert_allclose(grad, want / mask.sum(), rtol=1e-5, atol=1e-7)


def test_leave_one_out_against_loops():
    rng = np.random.default_rng(3)
    reward = rng.normal(5, 2, (3, 5)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 1, 0, 0]], bool)
    got = losses.leave_one_out_advantage(
        jnp.where(mask, reward, jnp.nan), jnp.asarray(mask)
    )
    for i in range(3):
        for j in range(5):
            others = [reward[i, k] for k in range(5) if k != j and mask[i, k]]
            want = reward[i, j] - np.mean(others) if mask[i, j] and others else 0.0
            np.testing.assert_allclose(got[i, j], want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("reward", "size"), [(0.1, 10), (-74.13, 7), (1e6 / 3, 33)])
def test_a_group_of_equal_rewards_has_no_advantage_though_its_mean_is_rounded(
    reward, size
):
    group = jnp.full((1, size), reward, jnp.float32)
    np.testing.assert_array_equal(losses.leave_one_out_advantage(group), 0)


def reference_gae(reward, value, mask, discount, trace, last):
    out = np.zeros(reward.shape)
    for i in range(reward.shape[0]):
        ids = [t for t in range(reward.shape[1]) if mask[i, t]]
        for a in range(len(ids)):
            # The definition: a discounted sum of temporal differences to the end.
            for b in range(a, len(ids)):
                after = value[i, ids[b + 1]] if b + 1 < len(ids) else last[i]
                td = reward[i, ids[b]] + discount * after - value[i, ids[b]]
                out[i, ids[a]] += (discount * trace) ** (b - a) * td
    return out


@pytest.mark.parametrize(("discount", "trace"), [(1.0, 1.0), (0.97, 0.9), (0.9, 0.0)])
def test_gae_against_the_definition_with_gaps(discount, trace):
    rng = np.random.default_rng(4)
    reward, value = rng.normal(size=(2, B, T)).astype(np.float32)
    mask = np.array(
        [[1] * 7, [1, 1, 0, 0, 1, 1, 0], [0, 0, 1, 0, 0, 0, 0], [0] * 7], bool
    )
    last = rng.normal(size=B).astype(np.float32)
    got = losses.gae(
        *(jnp.asarray(x) for x in (reward, value, mask)),
        discount=discount,
        trace=trace,
        last_value=jnp.asarray(last),
    )
    want = reference_gae(reward, value, mask, discount, trace, last)
    np.testing.assert_allclose(got.advantage, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.target, (want + value) * mask, rtol=1e-4, atol=1e-5)


def test_undiscounted_gae_is_return_minus_value():
    rng = np.random.default_rng(5)
    reward, value = rng.normal(size=(2, B, T)).astype(np.float32)
    got = losses.gae(jnp.asarray(reward), jnp.asarray(value), jnp.ones((B, T), bool))
    returns = reward[:, ::-1].cumsum(1)[:, ::-1]
    np.testing.assert_allclose(got.target, returns, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.advantage, returns - value, rtol=1e-4, atol=1e-5)


def test_whiten_normalises_the_counted_entries(batch):
    # A mean far above the spread: one pass in float32 would lose the variance.
    x = 600 + 0.5 * batch["advantage"]
    mask = batch["mask"]
    got = np.asarray(losses.whiten(jnp.asarray(x), jnp.asarray(mask)))
    counted = x.astype(np.float64)[mask]
    want = (counted - counted.mean()) / counted.std()
    np.testing.assert_allclose(got[mask], want, rtol=1e-4, atol=1e-4)
    assert not got[~mask].any()
    kept = losses.whiten(jnp.asarray(x), jnp.asarray(mask), shift_mean=False)
    np.testing.assert_allclose(kept[mask], want + counted.mean(), rtol=1e-5)


def test_whiten_leaves_equal_values_at_zero():
    got = losses.whiten(jnp.full((2, 3), 0.1), jnp.ones((2, 3), bool))
    np.testing.assert_allclose(got, 0, atol=1e-6)


def test_one_trace_serves_every_mask(batch):
    chex.clear_trace_counter()
    f = jax.jit(chex.assert_max_traces(losses.ppo_clip_loss, n=1))
    args = [jnp.asarray(batch[k]) for k in ("log_prob", "old", "advantage")]
    for n in range(T):
        f(*args, jnp.broadcast_to(jnp.arange(T) < n, (B, T)))
