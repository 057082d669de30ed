"""The price of a small network: mean reward and seconds of every arm, then Dinkelbach.

Apart from ``bandit.prices`` because flax and optax are slow to import.
"""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jaxtyping import Array, Float, Int

from bandit.base import Number, check_sizes
from bandit.prices import Price, from_estimator
from rpg_jax import rates


class _CellNetwork(nn.Module):
    """Mean reward and duration of every arm from a one-hot context."""

    num_contexts: int
    num_actions: int

    @nn.compact
    def __call__(self, context: Int[Array, "*batch"]) -> Float[Array, "*batch arms 2"]:
        hidden = nn.tanh(nn.Dense(16)(jax.nn.one_hot(context, self.num_contexts)))
        out = nn.Dense(2 * self.num_actions)(hidden)
        return out.reshape(*context.shape, self.num_actions, 2)


def neural(num_contexts: int, num_actions: int, *, step_size: Number) -> Price:
    """The neural estimator as a price, one gradient step every 64 decisions.

    Args:
      num_contexts: X.
      num_actions: A = K + 1.
      step_size: of Adam.
    """
    check_sizes(num_contexts, num_actions)
    network = _CellNetwork(num_contexts, num_actions)
    contexts = jnp.arange(num_contexts)

    def apply(params: optax.Params, context: Int[Array, "*batch"]) -> Array:
        return jnp.asarray(network.apply(params, context))

    estimator = rates.neural(
        apply,
        network.init(jax.random.key(0), contexts),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(step_size)),
        num_steps=1,
        contexts=contexts,
        units="first",  # what the study's records mean
    )
    return from_estimator(estimator, every=64, greedy_only=False)
