"""A learning agent, run on a log: rows are kept as if the agent had chosen them.

The agent sees a row's context and chooses. If it chose the row's arm, the row is kept
with probability p_min/p(a|x), p_min the least propensity of the log; otherwise it
learns nothing. A context and a choice are then kept with the same probability p_min
whatever they are, so that the kept rows are distributed as decisions of the agent
itself: no weights are left over. It costs rows: n p_min of n are kept.

Source: Li et al. (2011) for uniform logs; with inverse propensities, rejection
sampling.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bandit.base import Index, Scalar, State, Step
from bandit.instance import Env, optimal_rate
from bandit.logged import Log
from bandit.registry import Builder, Hyper

#: Decisions below which a log cannot replay a learning agent.
MIN_DECISIONS = 50.0


class Replayed(NamedTuple):
    """Replays of one agent, each on its own resample of the log's rows.

    Attributes:
      decisions: rows that were kept.
      reward: their sum of rewards.
      seconds: their sum of seconds.
    """

    decisions: Int[np.ndarray, " trials"]
    reward: Float[np.ndarray, " trials"]
    seconds: Float[np.ndarray, " trials"]

    @property
    def rate(self) -> Float[np.ndarray, " trials"]:
        """Reward per second of each replay; nan where no row was kept."""
        with np.errstate(invalid="ignore"):
            return self.reward / self.seconds


class _Row(NamedTuple):
    """A logged decision, and the draws of the replay; under scan those of one."""

    context: Int[Array, "*rows"]
    arm: Int[Array, "*rows"]
    reward: Float[Array, "*rows"]
    seconds: Float[Array, "*rows"]
    keep: Float[Array, "*rows"]
    number: Int[Array, "*rows"]


def table_env(log: Log) -> Env:
    """The log's cell means as an instance: its shape is what agents may use.

    A cell without rows gets the means of the worst-paid cell of its context.

    Raises:
      ValueError: a context without rows.
    """
    reward, seconds = log.means()
    if (log.counts.sum(axis=1) == 0).any():
        raise ValueError("a context of the log has no row")
    worst = np.where(log.counts > 0, reward / seconds, np.inf).argmin(axis=1)
    at = np.where(log.counts > 0, np.arange(len(log.arms)), worst[:, None])
    reward = np.take_along_axis(reward, at, axis=1)
    seconds = np.take_along_axis(seconds, at, axis=1)
    return Env(
        reward_loc=reward,
        duration_loc=seconds,
        mean_reward=reward,
        mean_duration=seconds,
        rho_star=np.asarray(optimal_rate(reward, seconds)),
        correlation=np.asarray(0.0),
        lognormal=np.asarray(0.0),
    )


def expected_decisions(log: Log) -> float:
    """n p_min: the rows that a replay keeps, on average."""
    return float(len(log.context) * log.propensity.min())


def refusal(log: Log) -> str:
    """Why the log cannot replay a learning agent; empty if it can."""
    kept = expected_decisions(log)
    if kept < MIN_DECISIONS:
        return (
            f"a replay would keep {kept:.0f} of {len(log.context)} rows (rows times "
            f"the least propensity, {log.propensity.min():.2g}); {MIN_DECISIONS:.0f} "
            "are needed"
        )
    if (log.counts == 0).any():
        x, a = np.argwhere(log.counts == 0)[0]
        return (
            f"arm {log.arms[a]!r} has no row in context {log.contexts[x]!r}: a "
            "learning agent would try it"
        )
    return ""


def replay(
    log: Log,
    build: Builder,
    hyper: Mapping[str, float],
    *,
    trials: int,
    key: Key[Array, ""],
) -> Replayed:
    """Replays an agent on resamples (with replacement) of the log's rows.

    Args:
      log: the log.
      build: makes the agent; the instance it gets has the log's shape and means.
      hyper: its setting.
      trials: number of resamples; their spread shows the log's sampling error, too.
      key: of resamples and the agent's draws.

    Raises:
      ValueError: trials < 1, or the log cannot replay an agent.
    """
    if trials < 1:
        raise ValueError(f"need at least one trial, got {trials}")
    if refusal(log):
        raise ValueError(refusal(log))
    rows = _Row(
        context=jnp.asarray(log.context, jnp.int32),
        arm=jnp.asarray(log.arm, jnp.int32),
        reward=jnp.asarray(log.reward, jnp.float32),
        seconds=jnp.asarray(log.seconds, jnp.float32),
        keep=jnp.asarray(log.propensity.min() / log.propensity, jnp.float32),
        number=jnp.arange(len(log.context), dtype=jnp.int32),
    )
    env = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), table_env(log))
    setting = {name: jnp.float32(value) for name, value in hyper.items()}
    found = _replay(build, env, setting, rows, jax.random.split(key, trials))
    decisions, reward, seconds = (np.asarray(v, np.float64) for v in found)
    return Replayed(decisions.astype(int), reward, seconds)


@partial(jax.jit, static_argnames=("build",))
def _replay(
    build: Builder,
    env: Env,
    setting: Hyper,
    rows: _Row,
    keys: Key[Array, " trials"],
) -> Float[Array, "3 trials"]:
    """Kept rows, their rewards and seconds, of each trial."""
    agent = build(env, setting)

    def trial(key: Key[Array, ""]) -> Float[Array, "3"]:
        order_key, draw_key = jax.random.split(key)
        size = rows.context.shape[0]
        order = jax.random.randint(order_key, (size,), 0, size)
        drawn = jax.tree.map(lambda leaf: leaf[order], rows)
        drawn = drawn._replace(number=rows.number)

        def decide(
            carry: tuple[State, Float[Array, "3"]], row: _Row
        ) -> tuple[tuple[State, Float[Array, "3"]], None]:
            state, sums = carry
            uniforms, normals = _draws(draw_key, row.number, agent.num_normals)
            step = Step(sums[0] + 1.0, row.context, uniforms[0], normals)
            action, acted = agent.act(state, step)
            kept = (action == row.arm) & (uniforms[1] < row.keep)
            new = agent.update(acted, step, action, row.reward, row.seconds)
            # Not ``acted``: a row that is out has not happened.
            state = jax.tree.map(partial(jnp.where, kept), new, state)
            terms = jnp.stack([jnp.ones(()), row.reward, row.seconds])
            return (state, sums + jnp.where(kept, terms, 0.0)), None

        start = (agent.init(), jnp.zeros(3))
        return jax.lax.scan(decide, start, drawn)[0][1]

    return jax.lax.map(trial, keys, batch_size=64).T


def _draws(
    key: Key[Array, ""], number: Index, num_normals: int
) -> tuple[Scalar, Float[Array, " num_normals"]]:
    """Two uniforms and the agent's normals at one row."""
    uniform_key, normal_key = jax.random.split(jax.random.fold_in(key, number))
    return (
        jax.random.uniform(uniform_key, (2,)),
        jax.random.normal(normal_key, (num_normals,)),
    )
