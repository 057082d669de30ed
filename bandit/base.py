"""What an agent is, and the small pieces every agent is made of.

Agents are written for one trial and vmapped by the simulator: no batch axis appears in
them. A step of a trial is ``act`` then ``update``; both are pure.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

State = Any


class Step(NamedTuple):
    """What an agent is told before it acts.

    Attributes:
      t: number of this decision, counted from 1, float32 [].
      context: x, int32 [].
      uniform: a U(0, 1) draw for the action, [].
      normals: standard normals, [num_normals] (empty for most agents).
    """

    t: jax.Array
    context: jax.Array
    uniform: jax.Array
    normals: jax.Array


class Agent(NamedTuple):
    """A bandit agent as pure functions over one trial.

    Attributes:
      init: () -> state.
      act: (state, step) -> (action, state); action is int32 [], SKIP is A - 1.
      update: (state, step, action, reward, duration) -> state.
      rate: state -> the rate the agent charges for time, reward per second.
      num_normals: normals it wants at each decision.
    """

    init: Callable[[], State]
    act: Callable[[State, Step], tuple[jax.Array, State]]
    update: Callable[[State, Step, jax.Array, jax.Array, jax.Array], State]
    rate: Callable[[State], jax.Array]
    num_normals: int = 0


class CellSums(NamedTuple):
    """Sums of one context's cells, as rows of one array so that a step touches it once.

    Attributes:
      reward: sum of rewards, [A].
      duration: sum of durations in seconds, [A].
      count: number of samples, [A].
    """

    reward: jax.Array
    duration: jax.Array
    count: jax.Array

    @property
    def tried(self) -> jax.Array:
        """Whether the cell has a sample, bool [A]."""
        return self.count > 0

    @property
    def safe_count(self) -> jax.Array:
        """The count, 1 for an untried cell: safe to divide by, [A]."""
        return jnp.maximum(self.count, 1.0)

    def add(
        self, action: jax.Array, reward: jax.Array, duration: jax.Array
    ) -> "CellSums":
        """The sums after one more sample of an action."""
        # Dense and vectorised: a row is short, and one scatter of the whole row by
        # the caller is cheaper on CPU than three scatters of one element each.
        chosen = one_hot(action, self.count.shape[-1])
        return CellSums(
            self.reward + chosen * reward,
            self.duration + chosen * duration,
            self.count + chosen,
        )

    def value(self, rate: jax.Array) -> jax.Array:
        """Mean relative reward (sum r - rate sum delta)/n; 0 where untried, [A]."""
        return (self.reward - rate * self.duration) / self.safe_count


def one_hot(index: jax.Array, size: int) -> jax.Array:
    """Float one-hot vector of an index, [size]."""
    return (jnp.arange(size) == index).astype(jnp.float32)


def first_argmax(values: jax.Array) -> jax.Array:
    """Index of the first largest entry of [A], int32 [].

    Several times faster than ``jnp.argmax`` on XLA's CPU backend. NaN anywhere would
    give the out-of-range index A, which the clip turns into the last action.
    """
    size = values.shape[-1]
    hits = jnp.where(values == values.max(), jnp.arange(size), size)
    return jnp.minimum(hits.min(), size - 1).astype(jnp.int32)


def categorical(uniform: jax.Array, probabilities: jax.Array) -> jax.Array:
    """Inverse-CDF draw from (possibly unnormalised) probabilities [A], int32 []."""
    cumulative = jnp.cumsum(probabilities)
    # <= : at u = 0 an action without probability is not drawn.
    below = cumulative <= uniform * cumulative[-1]
    return jnp.minimum(below.sum(), probabilities.shape[-1] - 1).astype(jnp.int32)


class GreedyRate(NamedTuple):
    """Asynchronous Dinkelbach: the plug-in rate of the policy greedy at that rate.

    Holds the visited contexts' greedy cells; a decision refreshes only the visited
    context's, so that a step costs O(A + X) and the rate follows the fixed point of
    rho = sum_x rbar(x, u(x)) / sum_x dbar(x, u(x)) with u greedy for rbar - rho dbar.

    Attributes:
      reward: mean reward of each context's greedy cell, 0 if unvisited, [X].
      duration: its mean duration in seconds, 0 if unvisited, [X].
      rate: the plug-in rate, floored at 0, [].
    """

    reward: jax.Array
    duration: jax.Array
    rate: jax.Array

    @classmethod
    def empty(cls, num_contexts: int) -> "GreedyRate":
        """Before any data: rate 0."""
        zeros = jnp.zeros(num_contexts)
        return cls(zeros, zeros, jnp.zeros(()))

    def refresh(self, context: jax.Array, cells: CellSums) -> "GreedyRate":
        """Dinkelbach's step after the visited context's cells changed.

        Args:
          context: x, int [].
          cells: that context's sums, with at least one cell tried.
        """
        value = jnp.where(cells.tried, cells.value(self.rate), -jnp.inf)
        greedy = first_argmax(value)
        count = cells.count[greedy]
        reward = self.reward.at[context].set(cells.reward[greedy] / count)
        duration = self.duration.at[context].set(cells.duration[greedy] / count)
        rate = jnp.maximum(reward.sum() / duration.sum(), 0.0)
        return GreedyRate(reward, duration, rate)
