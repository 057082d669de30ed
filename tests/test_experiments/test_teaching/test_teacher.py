"""The teacher's update: losses, rates, optimizer; the tiny model's temperature."""

import jax
import numpy as np
import pytest

from experiments.teaching.batches import TokenBatch
from experiments.teaching.teacher import TeachOptions, losses, optimizer, schedule
from experiments.teaching.tiny_model import tiny_config
from rpg_jax.llm import model_for

CONFIG = tiny_config(64, width=32, depth=2, hidden=48)
MODEL = model_for(CONFIG)
PARAMS = jax.jit(MODEL.init)(jax.random.key(0))


@jax.jit
def _jitted(params, tokens, mask):
    return MODEL.logits(params, MODEL.forward(params, tokens, mask)[0])


def _logits(params, tokens, mask):
    return np.asarray(_jitted(params, tokens, mask))


def _batch():
    """Two rows of random tokens: padding, a prompt of weight 0.1, an answer."""
    rng = np.random.default_rng(0)
    mask = np.arange(48) >= np.array([[0], [11]])
    answer = np.arange(48) >= np.array([[20], [30]])
    weight = np.where(answer, 1.0, 0.1).astype(np.float32) * mask
    tokens = rng.integers(3, 64, (2, 48)).astype(np.int32)
    return TokenBatch(np.where(mask, tokens, 0).astype(np.int32), mask, weight)


def test_losses_against_float64():
    batch = _batch()
    loss, answer = jax.jit(lambda p: losses(CONFIG, p, batch))(PARAMS)
    logits = _logits(PARAMS, batch.tokens, batch.mask)[:, :-1].astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(log_p, batch.tokens[:, 1:, None], -1)[..., 0]
    weight = batch.weight[:, 1:].astype(np.float64)
    assert float(loss) == pytest.approx(-(picked * weight).sum() / weight.sum(), 1e-5)
    only = weight == 1
    assert float(answer) == pytest.approx(-picked[only].mean(), 1e-5)


def test_rates_rise_stay_and_fall_to_zero():
    options = TeachOptions(steps=100, warmup=0.1, decay=0.5)
    rate = schedule(options, 2.0)
    values = np.array([float(rate(k)) for k in range(101)])
    assert 0 < values[0] < values[5] < 2.0
    np.testing.assert_allclose(values[10:50], 2.0)
    assert np.all(np.diff(values[50:]) < 0)
    assert values[-1] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_matrices_of_layers_are_orthogonalised_and_the_rest_is_not():
    config = tiny_config(64, width=32, depth=4, hidden=48)
    params = model_for(config).init(jax.random.key(0))
    rule = optimizer(TeachOptions(steps=10, warmup=0.1))
    keys = iter(jax.random.split(jax.random.key(1), 200))
    grads = jax.tree.map(lambda p: jax.random.normal(next(keys), p.shape), params)
    with jax.numpy_dtype_promotion("standard"):  # optax's Muon counts on it
        updates, _ = jax.jit(rule.update)(grads, rule.init(params), params)

    def spread(matrix):
        values = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)
        return values[0] / values[-1]

    # A Gaussian matrix 48 x 32 has a condition number near 8; Newton-Schulz leaves its
    # singular values within a factor of two of each other.
    up = updates["layers"]["blocks"]["0"]["mlp"]["up_proj"][0]
    assert spread(up) < 2.5 < spread(updates["embed"])
    # Adam's first step has one size everywhere.
    sizes = np.abs(np.asarray(updates["embed"]))
    np.testing.assert_allclose(sizes, sizes.mean(), rtol=1e-3)
