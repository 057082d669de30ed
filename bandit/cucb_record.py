"""Cell tables as C-UCB meets them, recorded along trajectories.

For tests, for the benchmark of the exact maximum and for measuring how often the
approximate one falls short: random tables are far easier than those of a long trial,
where one heavy cell competes with handfuls of seldom played ones.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bandit import envs
from bandit.cucb import FLOOR, approximate_max, disagreement, exact_max, log_term


class Recording(NamedTuple):
    """Tables before some decisions of B trials, trials last.

    Attributes:
      sum_r: reward sums, [X, A, B].
      sum_d: duration sums, seconds, [X, A, B].
      n: counts, [X, A, B].
      penalty: 2 c1 L of the coming decision, [B].
      incumbent: the policy of the last lambda, int32 [X, B].
    """

    sum_r: jax.Array
    sum_d: jax.Array
    n: jax.Array
    penalty: jax.Array
    incumbent: jax.Array


@partial(jax.jit, static_argnames=("num_steps", "exact"))
def _play(env, c1, c2, keys, start, state, *, num_steps, exact):
    """``num_steps`` decisions of every trial; returns the state and step disagreement.

    The state is (Recording, lambda [B]).
    """
    num_contexts, num_actions = env.reward_loc.shape
    batch = c1.shape[0]
    lanes = jnp.arange(batch)
    arms = jnp.arange(num_actions, dtype=jnp.int32)[:, None]
    log_policies = num_contexts * float(np.log(num_actions))

    def step(carry, t):
        (sum_r, sum_d, n, _, policy), rate = carry
        k = jax.random.fold_in(keys, t.astype(jnp.int32))
        context_key, noise_key = jax.random.split(k)
        x = jax.random.randint(context_key, (batch,), 0, num_contexts)
        z1, z2 = envs.correlate(env, jax.random.normal(noise_key, (batch, 2)))
        rows = [table[x, :, lanes].T for table in (sum_r, sum_d, n)]
        count = jnp.maximum(rows[2], 1.0)
        bonus = c2[None] * jnp.sqrt(log_term(t, log_policies) / count)
        index = (rows[0] - rate[None] * rows[1]) / count + bonus
        index = jnp.where(rows[2] > 0, index, jnp.inf)
        top = index >= index.max(axis=0, keepdims=True)
        action = jnp.where(top, arms, num_actions - 1).min(axis=0)
        reward, duration = envs.outcome(
            env.reward_loc[x, action],
            env.duration_loc[x, action],
            action == num_actions - 1,
            z1,
            z2,
            env.lognormal,
        )
        sum_r = sum_r.at[x, action, lanes].add(reward)
        sum_d = sum_d.at[x, action, lanes].add(duration)
        n = n.at[x, action, lanes].add(1.0)
        penalty = 2.0 * c1 * log_term(t + 1.0, log_policies)
        args = (sum_r, sum_d, n, penalty, policy)
        rate, policy = exact_max(*args)[:2] if exact else approximate_max(*args)
        differs = jnp.zeros((batch,), bool)
        if exact:
            differs = disagreement(*args)[1]
        return (Recording(*args[:4], policy), rate), differs.mean(dtype=jnp.float32)

    return jax.lax.scan(step, state, start + jnp.arange(num_steps, dtype=jnp.float32))


def record(
    key: jax.Array,
    env: envs.Env,
    c1: np.ndarray,
    c2: np.ndarray,
    steps: tuple[int, ...],
    *,
    exact: bool = False,
) -> tuple[list[Recording], np.ndarray]:
    """Plays C-UCB on the canonical instance and keeps its tables at some decisions.

    Args:
      key: fixes contexts and noise.
      env: an instance, X <= 4 (permuting it changes nothing in lambda).
      c1: penalty scale of each trial, [B].
      c2: bonus scale of each trial, [B].
      steps: increasing numbers of decisions after which to keep the tables. Equal
        distances share one compilation.
      exact: play with the exact lambda and compare the approximate one, started from
        the same incumbent, at every decision; otherwise play with the approximate one.

    Returns:
      One Recording per entry of ``steps``, and the share of decisions at which exact
      and approximate lambda differed up to each, float [len(steps)] (0 unless exact).
    """
    env = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), env)
    c1, c2 = jnp.asarray(c1, jnp.float32), jnp.asarray(c2, jnp.float32)
    shape = (*env.reward_loc.shape, c1.shape[0])
    zeros = jnp.zeros(shape)
    policy = jnp.zeros((shape[0], shape[2]), jnp.int32)
    state = (
        Recording(zeros, zeros, zeros, jnp.zeros_like(c1), policy),
        jnp.full_like(c1, FLOOR),
    )
    out, differing, done = [], [], 0
    for step in steps:
        first = jnp.asarray(done + 1, jnp.float32)
        state, share = _play(
            env, c1, c2, key, first, state, num_steps=step - done, exact=exact
        )
        out.append(state[0])
        differing.append(float(share.sum()))
        done = step
    return out, np.cumsum(differing) / np.asarray(steps)
