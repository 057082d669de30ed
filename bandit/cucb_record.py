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
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from bandit import instance
from bandit.cucb import FLOOR, approximate_max, disagreement, exact_max, log_term
from bandit.cucb_policies import Column, Policy, Table
from bandit.instance import Env


class Recording(NamedTuple):
    """Tables before some decisions of B trials, trials last.

    Attributes:
      sum_r: reward sums.
      sum_d: duration sums, seconds.
      n: counts.
      penalty: 2 c1 L of the coming decision.
      incumbent: the policy of the last lambda.
    """

    sum_r: Table
    sum_d: Table
    n: Table
    penalty: Column
    incumbent: Policy


#: Tables and lambda of every trial.
_State = tuple[Recording, Column]


def _sample(
    env: Env, key: Key[Array, ""], state: _State, c2: Column, t: Array
) -> tuple[Table, Table, Table]:
    """Tables after one decision of every trial."""
    (sum_r, sum_d, n, _, _), rate = state
    num_contexts, num_actions, batch = sum_r.shape
    lanes = jnp.arange(batch)
    arms = jnp.arange(num_actions, dtype=jnp.int32)[:, None]
    context_key, noise_key = jax.random.split(key)
    x = jax.random.randint(context_key, (batch,), 0, num_contexts)
    z1, z2 = instance.correlate(env, jax.random.normal(noise_key, (batch, 2)))
    rows = [table[x, :, lanes].T for table in (sum_r, sum_d, n)]
    count = jnp.maximum(rows[2], 1.0)
    log_policies = num_contexts * float(np.log(num_actions))
    bonus = c2[None] * jnp.sqrt(log_term(t, log_policies) / count)
    index = (rows[0] - rate[None] * rows[1]) / count + bonus
    index = jnp.where(rows[2] > 0, index, jnp.inf)
    top = index >= index.max(axis=0, keepdims=True)
    action = jnp.where(top, arms, num_actions - 1).min(axis=0)
    reward, duration = instance.outcome(
        jnp.asarray(env.reward_loc)[x, action],
        jnp.asarray(env.duration_loc)[x, action],
        action == num_actions - 1,
        z1,
        z2,
        env.lognormal,
    )
    return (
        sum_r.at[x, action, lanes].add(reward),
        sum_d.at[x, action, lanes].add(duration),
        n.at[x, action, lanes].add(1.0),
    )


@partial(jax.jit, static_argnames=("num_steps", "exact"))
def _play(
    env: Env,
    c1: Column,
    c2: Column,
    keys: Key[Array, ""],
    start: Array,
    state: _State,
    *,
    num_steps: int,
    exact: bool,
) -> tuple[_State, Float[Array, " steps"]]:
    """``num_steps`` decisions of every trial; returns the state and step disagreement.

    The state is (Recording, lambda [B]).
    """
    num_contexts, num_actions = env.reward_loc.shape
    log_policies = num_contexts * float(np.log(num_actions))

    def step(state: _State, t: Array) -> tuple[_State, Array]:
        k = jax.random.fold_in(keys, t.astype(jnp.int32))
        tables = _sample(env, k, state, c2, t)
        penalty = 2.0 * c1 * log_term(t + 1.0, log_policies)
        before = state[0].incumbent
        args = (*tables, penalty, before)
        rate, policy = exact_max(*args)[:2] if exact else approximate_max(*args)
        differs = jnp.zeros(c1.shape, bool)
        if exact:
            differs = disagreement(*args)[1]
        after = Recording(*tables, penalty, policy)
        return (after, rate), differs.mean(dtype=jnp.float32)

    return jax.lax.scan(step, state, start + jnp.arange(num_steps, dtype=jnp.float32))


def record(
    key: Key[Array, ""],
    env: Env,
    c1: ArrayLike,
    c2: ArrayLike,
    steps: tuple[int, ...],
    *,
    exact: bool = False,
) -> tuple[list[Recording], Float[np.ndarray, " steps"]]:
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
      and approximate lambda differed up to each (0 unless exact).

    Raises:
      ValueError: more than 4 contexts, c1 and c2 that are not two vectors of one
        length, or steps that do not increase from 1 or more.
    """
    env = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), env)
    scale, bonus = jnp.asarray(c1, jnp.float32), jnp.asarray(c2, jnp.float32)
    if scale.ndim != 1 or scale.shape != bonus.shape or not scale.size:
        raise ValueError("c1 and c2 must be two vectors of one length")
    if not steps or steps[0] < 1 or (np.diff(steps) <= 0).any():
        raise ValueError(f"steps must increase from 1 or more, got {steps}")
    shape = (*env.reward_loc.shape, scale.shape[0])
    if shape[0] > 4:
        raise ValueError(f"need at most 4 contexts, got {shape[0]}")
    zeros = jnp.zeros(shape)
    policy = jnp.zeros((shape[0], shape[2]), jnp.int32)
    state = (
        Recording(zeros, zeros, zeros, jnp.zeros_like(scale), policy),
        jnp.full_like(scale, FLOOR),
    )
    out, differing, done = [], [], 0
    for step in steps:
        first = jnp.asarray(done + 1, jnp.float32)
        state, share = _play(
            env, scale, bonus, key, first, state, num_steps=step - done, exact=exact
        )
        out.append(state[0])
        differing.append(float(share.sum()))
        done = step
    return out, np.cumsum(differing) / np.asarray(steps)
