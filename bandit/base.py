"""What an agent is, and the small pieces every agent is made of.

Agents are written for one trial and vmapped by the simulator: no batch axis appears in
them. A step of a trial is ``act`` then ``update``; both are pure.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from rpg_jax.rewards import relative_reward

State = Any
#: One float, one index, one truth value; of one trial, or of many under vmap.
Scalar = Float[Array, ""]
Index = Int[Array, ""]
Flag = Bool[Array, ""]
#: A float or what is traced in its place: a hyper-parameter.
Number = Scalar | float
#: A value per action, [A]; the last is SKIP's.
PerAction = Float[Array, " actions"]


class Step(NamedTuple):
    """What an agent is told before it acts.

    Attributes:
      t: number of this decision, counted from 1, float32.
      context: x.
      uniform: a U(0, 1) draw for the action.
      normals: standard normals, as many as the agent asked for (most want none).
    """

    t: Scalar
    context: Index
    uniform: Scalar
    normals: Float[Array, " num_normals"]


class Agent(NamedTuple):
    """A bandit agent as pure functions over one trial.

    Attributes:
      init: () -> state.
      act: (state, step) -> (action, state); action is int32, SKIP is A - 1.
      update: (state, step, action, reward, duration) -> state.
      rate: state -> the rate the agent charges for time, reward per second.
      num_normals: normals it wants at each decision.
    """

    init: Callable[[], State]
    act: Callable[[State, Step], tuple[Index, State]]
    update: Callable[[State, Step, Index, Scalar, Scalar], State]
    rate: Callable[[State], Scalar]
    num_normals: int = 0


class CellSums(NamedTuple):
    """Sums of one context's cells, as rows of one array so that a step touches it once.

    Attributes:
      reward: sum of rewards.
      duration: sum of durations in seconds.
      visits: number of samples.
    """

    reward: PerAction
    duration: PerAction
    visits: PerAction

    @property
    def tried(self) -> Bool[Array, " actions"]:
        """Whether the cell has a sample."""
        return self.visits > 0

    @property
    def safe_visits(self) -> PerAction:
        """The number of samples, 1 for an untried cell: safe to divide by."""
        return jnp.maximum(self.visits, 1.0)

    def add(self, action: Index, reward: Scalar, duration: Scalar) -> "CellSums":
        """The sums after one more sample of an action."""
        # Dense and vectorised: a row is short, and one scatter of the whole row by
        # the caller is cheaper on CPU than three scatters of one element each.
        chosen = one_hot(action, self.visits.shape[-1])
        return CellSums(
            self.reward + chosen * reward,
            self.duration + chosen * duration,
            self.visits + chosen,
        )

    def value(self, rate: Number) -> PerAction:
        """Mean relative reward (sum r - rate sum delta)/n; 0 where untried."""
        return relative_reward(self.reward, self.duration, rate) / self.safe_visits


def one_hot(index: Index, size: int) -> Float[Array, " size"]:
    """Float one-hot vector of an index.

    Raises:
      ValueError: size < 1.
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    return (jnp.arange(size) == index).astype(jnp.float32)


def first_argmax(values: PerAction) -> Index:
    """Index of the first largest entry, int32.

    Several times faster than ``jnp.argmax`` on XLA's CPU backend. NaN anywhere would
    give the out-of-range index A, which the clip turns into the last action.

    Raises:
      ValueError: no entry.
    """
    size = _length(values)
    hits = jnp.where(values == values.max(), jnp.arange(size), size)
    return jnp.minimum(hits.min(), size - 1).astype(jnp.int32)


def _length(values: PerAction) -> int:
    """A of a vector over actions."""
    chex.assert_rank(values, 1)
    if values.shape[0] < 1:
        raise ValueError("need at least one action")
    return values.shape[0]


def categorical(uniform: Scalar, probabilities: PerAction) -> Index:
    """Inverse-CDF draw from probabilities that need not add up to 1, int32.

    Raises:
      ValueError: no entry.
    """
    size = _length(probabilities)
    cumulative = jnp.cumsum(probabilities)
    # <= : at u = 0 an action without probability is not drawn.
    below = cumulative <= uniform * cumulative[-1]
    return jnp.minimum(below.sum(), size - 1).astype(jnp.int32)


def check_sizes(num_contexts: int, num_actions: int) -> None:
    """Refuses an empty problem.

    Raises:
      ValueError: X < 1 or A < 1.
    """
    if num_contexts < 1 or num_actions < 1:
        raise ValueError(
            f"need at least 1 context and 1 action, got {num_contexts} and "
            f"{num_actions}"
        )


def check_numbers(*, positive: bool = False, **values: Number) -> None:
    """Refuses hyper-parameters that are negative or not finite; traced ones pass.

    Args:
      positive: refuse 0, too.
      values: hyper-parameters by name.

    Raises:
      ValueError: the message names the first such hyper-parameter.
    """
    for name, value in values.items():
        if not isinstance(value, int | float | np.ndarray | np.generic):
            continue
        least = np.all(value > 0) if positive else np.all(value >= 0)
        if not (np.isfinite(value).all() and least):
            bound = "above 0" if positive else "at least 0"
            raise ValueError(f"{name} must be finite and {bound}, got {value}")


class GreedyRate(NamedTuple):
    """Asynchronous Dinkelbach: the plug-in rate of the policy greedy at that rate.

    Holds the visited contexts' greedy cells; a decision refreshes only the visited
    context's, so that a step costs O(A + X) and the rate follows the fixed point of
    rho = sum_x rbar(x, u(x)) / sum_x dbar(x, u(x)) with u greedy for rbar - rho dbar.

    Attributes:
      reward: mean reward of each context's greedy cell, 0 if unvisited.
      duration: its mean duration in seconds, 0 if unvisited.
      rate: the plug-in rate, floored at 0.
    """

    reward: Float[Array, " contexts"]
    duration: Float[Array, " contexts"]
    rate: Scalar

    @classmethod
    def empty(cls, num_contexts: int) -> "GreedyRate":
        """Before any data: rate 0."""
        check_sizes(num_contexts, 1)
        zeros = jnp.zeros(num_contexts)
        return cls(zeros, zeros, jnp.zeros(()))

    def refresh(
        self, context: Index, cells: CellSums, value: PerAction | None = None
    ) -> "GreedyRate":
        """Dinkelbach's step after the visited context's cells changed.

        Args:
          context: x.
          cells: that context's sums, with at least one cell tried.
          value: what the greedy action maximises; mean relative rewards if None.
        """
        if value is None:
            value = cells.value(self.rate)
        value = jnp.where(cells.tried, value, -jnp.inf)
        greedy = first_argmax(value)
        visits = cells.visits[greedy]
        reward = self.reward.at[context].set(cells.reward[greedy] / visits)
        duration = self.duration.at[context].set(cells.duration[greedy] / visits)
        rate = jnp.maximum(reward.sum() / duration.sum(), 0.0)
        return GreedyRate(reward, duration, rate)
