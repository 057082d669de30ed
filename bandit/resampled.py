"""A log as an environment: a decision draws one of the rows of its cell.

The rewards and seconds are the ones that were measured; the means, and so rho* and
regrets, are exactly those of the log. That is a simulation of the world the log came
from, and right as far as a cell's rows stand for the cell: chosen by the context (and
the recorded propensity), and enough of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int

from bandit.instance import Env
from bandit.logged import Log
from bandit.registry import EnvSpec
from bandit.replay import table_env


def resampled(name: str, log: Log, *, title: str = "") -> EnvSpec:
    """An environment of one size whose outcomes are the log's rows.

    Args:
      name: what ``--env`` and tables call it.
      log: every cell needs at least one row.
      title: what figures show; the name if empty.

    Raises:
      ValueError: a cell without rows.
    """
    if (log.counts == 0).any():
        x, a = np.argwhere(log.counts == 0)[0]
        raise ValueError(
            f"arm {log.arms[a]!r} has no row in context {log.contexts[x]!r}: the log "
            "is no environment"
        )
    num_contexts, num_arms = log.counts.shape
    order = np.argsort(log.cell, kind="stable")
    start = jnp.asarray(np.append(0, np.cumsum(log.counts)[:-1]), jnp.int32)
    count = jnp.asarray(log.counts.ravel(), jnp.int32)
    reward = jnp.asarray(log.reward[order], jnp.float32)
    seconds = jnp.asarray(log.seconds[order], jnp.float32)
    chance = _cumulative(log, order)
    env = table_env(log)
    # A permuted instance is told which cells it has by this table.
    env = env._replace(
        reward_loc=np.arange(num_contexts * num_arms, dtype=float).reshape(
            num_contexts, num_arms
        )
    )

    def make(arms: int, contexts: int) -> Env:
        if (arms, contexts) != (num_arms, num_contexts):
            raise ValueError(f"{name} has {num_arms} arms and {num_contexts} contexts")
        return env

    def draw(
        instance: Env,
        context: Int[Array, ""],
        action: Int[Array, ""],
        normals: Float[Array, "2"],
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        cell = jnp.asarray(instance.reward_loc)[context, action].astype(jnp.int32)
        first, size = start[cell], count[cell]
        row = _row(chance, first, size, ndtr(normals[0]))
        return reward[row], seconds[row]

    return EnvSpec(name, title or name, make, draw, size=(num_arms, num_contexts))


def _cumulative(log: Log, order: Int[np.ndarray, " rows"]) -> Float[Array, " rows"]:
    """Within each cell, the cumulative share of 1/propensity up to each row."""
    weight, cell = 1.0 / log.propensity[order], log.cell[order]
    total = np.bincount(cell, weight)[cell]
    running = np.cumsum(weight / total)
    first = np.append(True, cell[1:] != cell[:-1])
    before = np.where(first, running - weight / total, 0.0)
    return jnp.asarray(running - np.maximum.accumulate(before), jnp.float32)


def _row(
    chance: Float[Array, " rows"],
    first: Int[Array, ""],
    size: Int[Array, ""],
    uniform: Float[Array, ""],
) -> Int[Array, ""]:
    """The row of a cell at a uniform draw, by bisection of its cumulative shares."""
    low, high = first, first + size - 1

    def halve(
        _: int, ends: tuple[Int[Array, ""], Int[Array, ""]]
    ) -> tuple[Int[Array, ""], Int[Array, ""]]:
        left, right = ends
        middle = (left + right) // 2
        above = chance[middle] < uniform
        return jnp.where(above, middle + 1, left), jnp.where(above, right, middle)

    steps = int(np.ceil(np.log2(chance.shape[0] + 1)))
    low, _ = jax.lax.fori_loop(0, steps, halve, (low, high))
    return jnp.minimum(low, first + size - 1)
