"""A tiny policy's PPO step, and a plain oracle of it for the tests."""

import dataclasses

import jax
import jax.numpy as jnp
import llm_tiny as tiny
import numpy as np
import optax

from rpg_jax.llm import make_ppo, optim
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


def run(hyper, params, batch, steps=1):
    if steps > 1:  # the batch of the first step is rightly called stale later
        hyper = dataclasses.replace(hyper, mismatch_warn=1e9)
    ppo = make_ppo(CONFIG, hyper)
    state = ppo.init(jax.random.key(1), params)
    metrics = None
    for _ in range(steps):
        state, metrics = ppo.update(state, batch)
    return ppo, state, metrics


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
