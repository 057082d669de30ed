"""The flax network of the neural estimator."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rpg_jax import neural
from rpg_jax.network import MeanNetwork
from rpg_jax.types import checked_batch


def test_it_is_what_it_says():
    net = MeanNetwork(num_arms=3, hidden=5)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)), jnp.float32)
    params = net.init(jax.random.key(0), x)
    got = net.apply(params, x)
    chex.assert_shape(got, (4, 3, 2))
    layers = jax.tree.map(np.asarray, params["params"])
    hidden = np.tanh(
        np.asarray(x) @ layers["hidden"]["kernel"] + layers["hidden"]["bias"]
    )
    want = (hidden @ layers["out"]["kernel"]).reshape(4, 3, 2)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_estimator_of_it_finds_the_rate():
    """One context, two arms: 1 a second beats 3 in 6 seconds."""
    contexts = jnp.ones((1, 1))
    net = MeanNetwork(num_arms=2)
    estimator = neural(
        net.apply,
        net.init(jax.random.key(0), contexts),
        optax.adam(0.05),
        num_steps=200,
        contexts=contexts,
    )
    action = np.arange(16) % 2
    batch = checked_batch(
        np.where(action == 0, 1.0, 3.0),
        np.where(action == 0, 1.0, 6.0),
        context=np.ones((16, 1), np.float32),
        action=action,
    )
    state = jax.jit(estimator.update)(estimator.init(), batch)
    rate = estimator.rate(state, estimator.rate(state, jnp.float32(0.0)))
    np.testing.assert_allclose(rate, 1.0, rtol=0.05)
