"""What the tests of the rates share: a table of means, data of it, a network."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rpg_jax import rates
from rpg_jax.types import checked_batch

#: Contexts, arms, rows of a batch.
X, A, B = 3, 4, 64


def _world():
    rng = np.random.default_rng(0)
    return rng.uniform(0.2, 2, (X, A)), rng.uniform(0.5, 3, (X, A))


#: Mean reward and duration, one row a context, one column an arm.
WORLD = _world()


def draw(table, seed, size=B, noise=0.1, greedy=None):
    rng = np.random.default_rng(seed)
    reward, duration = table
    context = rng.integers(0, X, size)
    action = rng.integers(0, A, size) if greedy is None else greedy[context]
    r = reward[context, action] + noise * rng.normal(size=size)
    d = duration[context, action] * np.exp(noise * rng.normal(size=size))
    return checked_batch(r, d, context=context, action=action)


class Net(nn.Module):
    """A table as a network: one-hot contexts, one dense layer."""

    @nn.compact
    def __call__(self, context):
        out = nn.Dense(2 * A)(jax.nn.one_hot(context, X))
        return out.reshape((*context.shape, A, 2))


def neural(num_steps=40, **kwargs):
    net = Net()
    params = net.init(jax.random.key(1), jnp.arange(X))
    return rates.neural(
        net.apply,
        params,
        optax.adam(0.03),
        num_steps=num_steps,
        contexts=jnp.arange(X),
        **kwargs,
    )


def estimators():
    return {
        "niw": rates.niw(X, A),
        "niw_log": rates.niw(X, A, log_duration=True, forgetting=0.9),
        "niw_quantile": rates.niw(X, A, quantile=0.9),
        "niw_slots": rates.niw_slots(16, age=50, fit_every=8),
        "niw_slots_context": rates.niw_slots(X, by_context=True),
        "robbins_monro": rates.robbins_monro(0.1),
        "empirical": rates.empirical(forgetting=1.0),
        "neural": neural(num_steps=3),
    }


NAMES = list(estimators())


@functools.cache
def compiled(name):
    estimator = estimators()[name]
    traces = []

    def update(state, batch):
        traces.append(0)
        return estimator.update(state, batch)

    return estimator, jax.jit(update), jax.jit(estimator.rate), traces
