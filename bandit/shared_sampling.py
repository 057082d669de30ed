"""Posterior sampling that learns how much arms share across contexts.

The relative reward q(x,a) at the plug-in rate has crossed random effects
(``bandit.crossed``): mu + alpha_a + beta_x + gamma_xa. The variances of the effects are
learned by EM on the marginal likelihood, so that one setting serves problems whose
cells are independent (gamma is wide: every cell speaks for itself) and problems where
an arm is worth the same everywhere (gamma is narrow: contexts borrow from each other).
Every ``every`` decisions the effects are fitted exactly; in between a cell's own data
update what the other cells said about it. No action is forced: an untried one is drawn
from what its arm and context are worth.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bandit.base import (
    Agent,
    CellSums,
    Index,
    Number,
    PerAction,
    Scalar,
    Step,
    check_numbers,
    check_sizes,
    first_argmax,
)
from bandit.cell_noise import NoisyCells
from bandit.crossed import Components, learn, others_say, posterior, precision


class SharedState(NamedTuple):
    """What a trial knows.

    Attributes:
      data: statistics of all cells, and the plug-in rate.
      components: variances of the effects.
      mean: what the other cells say about q(x,a), at the last fit.
      variance: how sure they are.
    """

    data: NoisyCells
    components: Components
    mean: Float[Array, "contexts actions"]
    variance: Float[Array, "contexts actions"]

    @classmethod
    def empty(
        cls, num_contexts: int, num_actions: int, *, prior_sd: float
    ) -> "SharedState":
        """Before any data: the effects are worth their priors."""
        square = jnp.full((), prior_sd**2)
        shape = num_contexts, num_actions
        return cls(
            NoisyCells.empty(*shape),
            Components(jnp.zeros(()), square, square, square),
            jnp.zeros(shape),
            jnp.full(shape, 3.0 * prior_sd**2),
        )


class Belief(NamedTuple):
    """Normal beliefs about the values of one context's actions.

    Attributes:
      mean: posterior mean of q.
      own: variance of what is an action's alone.
      common: standard deviation of what all actions of the context share, weighted by
        how much of it the action's own data leave.
    """

    mean: PerAction
    own: PerAction
    common: PerAction


def believe(
    mean: PerAction, variance: PerAction, value: PerAction, noise: PerAction
) -> Belief:
    """Joins what other cells say with an action's own mean.

    With w = C/(C + v/n): mean (1 - w) c + w y, variance (1 - w) C. The least C of the
    context is taken to be common to its actions: it does not tell them apart.

    Args:
      mean: c, of the other cells.
      variance: C, theirs.
      value: y; ignored where the noise is infinite.
      noise: v/n; infinite for an untried action.
    """
    weight = jnp.where(jnp.isinf(noise), 0.0, variance / (variance + noise))
    left = 1.0 - weight
    least = variance.min()
    return Belief(
        mean=mean + weight * jnp.where(weight > 0, value - mean, 0.0),
        own=left * (variance - left * least),
        common=left * jnp.sqrt(least),
    )


def shared_sampling(
    num_contexts: int,
    num_actions: int,
    *,
    scale: Number = 1.0,
    prior_sd: float = 0.3,
    prior_count: float = 1.0,
    every: int = 50,
) -> Agent:
    """Thompson sampling under crossed effects whose variances are learned.

    Args:
      num_contexts: X.
      num_actions: A = K + 1.
      scale: factor on posterior standard deviations.
      prior_sd: of each effect and of the noise, before any data.
      prior_count: effects, or samples, that this is worth.
      every: decisions between two fits of the effects.

    Raises:
      ValueError: X or A is below 1, or a hyper-parameter is out of its range.

    Source: Thompson (1933); variance components by EM, Dempster et al. (1977).
    """
    check_sizes(num_contexts, num_actions)
    check_numbers(scale=scale)
    check_numbers(
        positive=True, prior_sd=prior_sd, prior_count=prior_count, every=every
    )

    def init() -> SharedState:
        return SharedState.empty(num_contexts, num_actions, prior_sd=prior_sd)

    def belief(state: SharedState, context: Index) -> Belief:
        return _belief(state, context, prior_sd=prior_sd, prior_count=prior_count)

    def act(state: SharedState, step: Step) -> tuple[Index, SharedState]:
        found = belief(state, step.context)
        own = jnp.sqrt(found.own) * step.normals[1:]
        sample = found.mean + scale * (own + found.common * step.normals[0])
        return first_argmax(sample), state

    def fit(state: SharedState) -> SharedState:
        return _fit(state, prior_sd=prior_sd, prior_count=prior_count)

    def update(
        state: SharedState, step: Step, action: Index, reward: Scalar, duration: Scalar
    ) -> SharedState:
        greedy = state.data.greedy
        data = state.data.add(step.context, action, reward, duration)
        state = state._replace(data=data._replace(greedy=greedy))
        # Shrunk means: the largest of many raw ones is too large.
        mean = belief(state, step.context).mean
        greedy = greedy.refresh(step.context, data.cells(step.context), mean)
        state = state._replace(data=data._replace(greedy=greedy))
        return jax.lax.cond(step.t % every == 0, fit, lambda same: same, state)

    return Agent(init, act, update, _rate, num_normals=num_actions + 1)


def _rate(state: SharedState) -> Scalar:
    return state.data.greedy.rate


def _belief(
    state: SharedState, context: Index, *, prior_sd: float, prior_count: float
) -> Belief:
    """What is believed about one context's actions, at the plug-in rate."""
    cells = state.data.cells(context)
    variance = state.data.variance(context, prior_count=prior_count, prior_sd=prior_sd)
    return believe(
        state.mean[context],
        state.variance[context],
        cells.value(state.data.greedy.rate),
        jnp.where(cells.tried, variance / cells.safe_visits, jnp.inf),
    )


def _fit(state: SharedState, *, prior_sd: float, prior_count: float) -> SharedState:
    """One EM step, and what the other cells say under its components."""
    data = state.data
    cells = CellSums(data.table[:, 0], data.table[:, 1], data.table[:, 2])
    variance = jax.vmap(
        lambda x: data.variance(x, prior_count=prior_count, prior_sd=prior_sd)
    )(jnp.arange(data.table.shape[0]))
    value, noise = cells.value(data.greedy.rate), variance / cells.safe_visits
    components = learn(
        value,
        noise,
        cells.tried,
        state.components,
        prior_sd=prior_sd,
        prior_count=prior_count,
    )
    weight = precision(noise, cells.tried, components)
    effects = posterior(value, weight, components)
    mean, spread = others_say(value, weight, effects, components)
    return SharedState(data, components, mean, spread)
