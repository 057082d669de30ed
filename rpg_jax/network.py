"""A small flax network for ``neural``: mean reward and seconds of every arm.

    net = MeanNetwork(num_arms=3)
    params = net.init(jax.random.key(0), contexts)
    estimator = neural(net.apply, params, optax.adam(1e-2), num_steps=50,
                       contexts=contexts)

``import rpg_jax`` does not import this file, nor flax.
"""

from __future__ import annotations

from flax import linen as nn
from jaxtyping import Array, Float


class MeanNetwork(nn.Module):
    """One hidden layer: W_out tanh(W x + b), read as [N, A, 2].

    Attributes:
      num_arms: A.
      hidden: width of the hidden layer.
    """

    num_arms: int = 1
    hidden: int = 8

    @nn.compact
    def __call__(self, context: Float[Array, "N F"]) -> Float[Array, "N A 2"]:
        """What ``neural`` calls the outputs: reward, and seconds before softplus."""
        hidden = nn.tanh(nn.Dense(self.hidden, name="hidden")(context))
        out = nn.Dense(2 * self.num_arms, use_bias=False, name="out")(hidden)
        return out.reshape(context.shape[0], self.num_arms, 2)
