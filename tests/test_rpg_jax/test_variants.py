"""Update steps and losses with and without jit, and the shapes that they refuse."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized

from rpg_jax import conjugate, losses, rates, rewards, updates
from rpg_jax.types import Batch

ROWS = 12


def batch(seed=0):
    rng = np.random.default_rng(seed)
    return Batch(
        context=jnp.asarray(rng.integers(0, 2, ROWS), jnp.int32),
        action=jnp.asarray(rng.integers(0, 3, ROWS), jnp.int32),
        reward=jnp.asarray(rng.normal(size=ROWS), jnp.float32),
        duration=jnp.asarray(rng.lognormal(size=ROWS), jnp.float32),
        mask=jnp.asarray(rng.random(ROWS) < 0.8),
    )


def tokens(seed=0, shape=(3, 5)):
    rng = np.random.default_rng(seed)
    draws = (jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(3))
    return (*draws, jnp.asarray(rng.random(shape) < 0.7))


class UpdateSteps(chex.TestCase):
    """Each step once compiled, once operation by operation, against plain NumPy."""

    @chex.variants(with_jit=True, without_jit=True)
    def test_niw_posterior(self):
        x = np.random.default_rng(1).normal(600, 1, (40, 2))
        got = self.variant(conjugate.update)(conjugate.niw_prior(), jnp.asarray(x))
        chex.assert_tree_all_finite(got)
        mean, n, kappa = x.mean(0), len(x), 1e-3
        scatter = (x - mean).T @ (x - mean)
        between = kappa * n / (kappa + n) * np.outer(mean, mean)
        np.testing.assert_allclose(got.mean, n * mean / (kappa + n), rtol=1e-6)
        np.testing.assert_allclose(
            got.scale, 1e-3 * np.eye(2) + scatter + between, rtol=1e-3, atol=1e-2
        )

    @chex.variants(with_jit=True, without_jit=True)
    def test_estimators(self):
        data = batch()
        keep = np.asarray(data.mask)
        for estimator in (
            rates.niw(2, 3),
            rates.robbins_monro(0.5),
            rates.empirical(),
        ):
            state = self.variant(estimator.update)(estimator.init(), data)
            rate = self.variant(estimator.rate)(state, jnp.float32(0))
            chex.assert_tree_all_finite((state, rate))
            chex.assert_shape(rate, ())
        want = np.sum(data.reward, where=keep) / np.sum(data.duration, where=keep)
        np.testing.assert_allclose(rate, want, rtol=1e-5)

    @chex.variants(with_jit=True, without_jit=True)
    def test_npg_and_spg(self):
        logits, q, *_ = tokens()
        policy = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        centred = q - (policy * q).sum(-1, keepdims=True)
        got = self.variant(updates.npg)(logits, q, step_size=0.3)
        np.testing.assert_allclose(got, logits + 0.3 * centred, atol=1e-6)
        got = self.variant(updates.spg)(logits, q, step_size=0.3)
        np.testing.assert_allclose(got, logits + 0.3 * policy * centred, atol=1e-6)

    @chex.variants(with_jit=True, without_jit=True)
    def test_ppo_first_epoch_is_a_policy_gradient_step(self):
        data = batch()
        logits = jnp.asarray(np.random.default_rng(2).normal(size=(2, 3)), jnp.float32)

        @self.variant
        def step(logits):
            rows = (data.context, data.action, data.reward, data.mask)
            return updates.ppo(logits, *rows, step_size=0.1, num_epochs=1)

        policy = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        want = np.array(logits, np.float64)
        live = np.flatnonzero(data.mask)
        for i in live:
            x, a = int(data.context[i]), int(data.action[i])
            score = np.eye(3)[a] - policy[x]
            want[x] += 0.1 * float(data.reward[i]) * score / len(live)
        np.testing.assert_allclose(step(logits), want, atol=1e-6)

    @chex.variants(with_jit=True, without_jit=True)
    def test_losses(self):
        log_prob, old, value, mask = tokens()
        keep = np.asarray(mask)
        loss, info = self.variant(losses.ppo_clip_loss)(log_prob, old, value, mask)
        ratio = np.exp(np.asarray(log_prob - old))
        worst = np.minimum(ratio * value, np.clip(ratio, 0.8, 1.2) * value)
        np.testing.assert_allclose(loss, -worst[keep].mean(), rtol=1e-5)
        chex.assert_tree_all_finite(info)
        got = self.variant(losses.value_clip_loss)(value, old, log_prob, mask)
        near = old + np.clip(value - old, -0.5, 0.5)
        worst = np.maximum((value - log_prob) ** 2, (near - log_prob) ** 2)
        np.testing.assert_allclose(got, worst[keep].mean() / 2, rtol=1e-5)
        kl = self.variant(losses.kl_estimate)(log_prob, old, mask)
        x = np.asarray(log_prob - old, np.float64)
        np.testing.assert_allclose(
            kl, np.where(keep, np.exp(-x) - 1 + x, 0), rtol=1e-4, atol=1e-6
        )

    @chex.variants(with_jit=True, without_jit=True)
    def test_advantages(self):
        reward, value, _, mask = tokens()
        last = reward[:, 0]
        got = self.variant(losses.gae)(reward, value, mask, last_value=last)
        # Without discount and trace the target is what is still to come.
        kept = np.where(mask, reward, 0)
        to_go = np.cumsum(kept[:, ::-1], axis=1)[:, ::-1] + last[:, None]
        np.testing.assert_allclose(got.target, np.where(mask, to_go, 0), atol=1e-5)
        got = self.variant(losses.leave_one_out_advantage)(reward)
        others = (reward.sum(-1, keepdims=True) - reward) / (reward.shape[-1] - 1)
        np.testing.assert_allclose(got, reward - others, atol=1e-5)

    @chex.variants(with_jit=True, without_jit=True)
    def test_relative_reward_and_charge(self):
        data = batch()
        relative = self.variant(rewards.relative_reward)
        got = relative(data.reward, data.duration, 0.5)
        np.testing.assert_allclose(got, data.reward - 0.5 * data.duration, rtol=1e-6)
        charged = self.variant(rewards.charged_duration)(data.duration, ~data.mask)
        slowest = np.max(data.duration, where=np.asarray(data.mask), initial=0)
        want = np.where(data.mask, data.duration, np.maximum(data.duration, slowest))
        np.testing.assert_array_equal(charged, want)


class Shapes(parameterized.TestCase):
    """What does not fit is refused at the call, not broadcast."""

    @parameterized.parameters(
        (losses.kl_estimate, ((2, 3), (2, 3), (3,))),
        (losses.ppo_clip_loss, ((2, 3), (2, 3), (3, 2), (2, 3))),
        (losses.value_clip_loss, ((2, 3), (2, 3), (2, 1), (2, 3))),
        (losses.gae, ((2, 3), (3,), (2, 3))),
        (losses.whiten, ((2, 3), (3,))),
        (losses.leave_one_out_advantage, ((2, 3), (3,))),
        (conjugate.moments, ((5, 2), (4,))),
        (conjugate.posterior, None),
    )
    def test_misfits(self, function, shapes):
        if shapes is None:
            arguments = [conjugate.niw_prior(), conjugate.empty_moments(dim=3)]
        else:
            arguments = [jnp.ones(shape) for shape in shapes]
        with pytest.raises(ValueError):
            function(*arguments)

    def test_a_last_value_and_a_mask_of_segments(self):
        ones = jnp.ones((2, 3))
        with pytest.raises(ValueError):
            losses.gae(ones, ones, ones, last_value=jnp.ones(()))
        zeros = jnp.zeros(5, jnp.int32)
        with pytest.raises(ValueError):
            conjugate.segment_moments(jnp.ones((5, 2)), zeros, 2, jnp.ones(1))

    @parameterized.parameters(updates.npg, updates.spg)
    def test_logits_and_values(self, step):
        with pytest.raises(ValueError):
            step(jnp.ones((2, 3)), jnp.ones(3), step_size=1.0)

    def test_batches(self):
        data = batch()
        estimator = rates.empirical()
        for change in (
            {"duration": data.duration[:-1]},
            {"reward": data.reward[:, None]},
            {"mask": data.mask[None]},
        ):
            with pytest.raises(ValueError):
                estimator.update(estimator.init(), data._replace(**change))
        cells = rates.niw(2, 3)
        with pytest.raises(ValueError):
            cells.update(cells.init(), data._replace(action=data.action[:-1]))
