"""The Lai-Robbins constant of an instance: what regret a decision's logarithm costs.

With known rho* and normal relative rewards of known variance v(x,a), no uniformly good
agent's regret grows more slowly than C log N with C = sum 2 v(x,a)/gap(x,a) over the
arms that are not optimal: C is the scale on which regrets of instances compare. It is a
limit for N -> inf and for cells that share nothing: at a finite N, and for agents that
borrow between contexts, regrets may lie below C log N.

Source: Lai and Robbins (1985); on relative rewards it is ours.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bandit.instance import Env, correlate, gaps, outcome

#: Nodes of the quadrature in each of the two normals.
NODES = 48


def noise_variance(env: Env) -> Float[np.ndarray, "contexts actions"]:
    """Var[r - rho* delta | x, a] under the study's noise, by Gauss-Hermite quadrature.

    Floors of reward and duration leave kinks: about 3 digits.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    pair = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    share = np.outer(weights, weights).ravel()
    z1, z2 = correlate(env, jnp.asarray(pair, jnp.float32))
    is_skip = jnp.zeros(env.mean_reward.shape, bool).at[:, -1].set(True)

    def spread(
        reward_loc: jax.Array, duration_loc: jax.Array, skip: jax.Array
    ) -> jax.Array:
        reward, seconds = outcome(
            jnp.full(z1.shape, reward_loc),
            jnp.full(z1.shape, duration_loc),
            jnp.full(z1.shape, skip),
            z1,
            z2,
            jnp.asarray(env.lognormal, jnp.float32),
        )
        value = reward - jnp.asarray(env.rho_star, jnp.float32) * seconds
        mean = (value * share).sum()
        return ((value - mean) ** 2 * share).sum()

    over = jax.vmap(jax.vmap(spread))
    reward_loc = jnp.asarray(env.reward_loc, jnp.float32)
    duration_loc = jnp.asarray(env.duration_loc, jnp.float32)
    return np.asarray(over(reward_loc, duration_loc, is_skip), np.float64)


def log_constant(env: Env) -> float:
    """C = sum 2 v/gap over arms that are not optimal, reward per nat."""
    gap, variance = np.asarray(gaps(env)), noise_variance(env)
    worse = gap > 1e-9
    return float((2.0 * variance[worse] / gap[worse]).sum())
