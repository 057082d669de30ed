"""Two agents of ours that need no tuning per problem: IMED and posterior sampling.

Both act on the mean relative reward q(a) = rbar(x,a) - rho dbar(x,a) at the consistent
plug-in rate rho, and scale their exploration by the variance that the cells themselves
show, where UCB needs a bonus tuned to the problem. In a context with an untried action
the first untried one is played.
"""

import jax.numpy as jnp

from bandit.base import (
    Agent,
    Index,
    Number,
    Scalar,
    Step,
    check_numbers,
    check_sizes,
    first_argmax,
)
from bandit.cell_noise import NoisyCells


def _update(
    state: NoisyCells,
    step: Step,
    action: Index,
    reward: Scalar,
    duration: Scalar,
) -> NoisyCells:
    return state.add(step.context, action, reward, duration)


def _rate(state: NoisyCells) -> Scalar:
    return state.greedy.rate


def imed(
    num_contexts: int,
    num_actions: int,
    *,
    scale: Number = 0.7,
    prior_count: float = 1.0,
    prior_sd: float = 0.3,
) -> Agent:
    """Plays the action with the least evidence against it.

    argmin_a n(a) (q* - q(a))^2 / (2 scale^2 v(a)) + log n(a), with q* = max_a q(a) and
    v(a) the variance of r - rho delta in the cell. ``scale`` < 1 explores less than the
    asymptotically optimal index.

    Args:
      num_contexts: X.
      num_actions: A = K + 1.
      scale: factor on standard deviations.
      prior_count: degrees of freedom that a cell gets at the pooled variance.
      prior_sd: standard deviation of r - rho delta assumed before any data.

    Raises:
      ValueError: X or A is below 1, or a hyper-parameter is out of its range.

    Source: Honda and Takemura (2015), for rewards; on relative rewards it is ours.
    """
    check_sizes(num_contexts, num_actions)
    check_numbers(
        positive=True, scale=scale, prior_count=prior_count, prior_sd=prior_sd
    )

    def act(state: NoisyCells, step: Step) -> tuple[Index, NoisyCells]:
        cells = state.cells(step.context)
        value = cells.value(state.greedy.rate)
        best = jnp.where(cells.tried, value, -jnp.inf).max()
        gap = jnp.where(cells.tried, best - value, 0.0)
        variance = state.variance(
            step.context, prior_count=prior_count, prior_sd=prior_sd
        )
        evidence = cells.safe_visits * gap * gap / (2.0 * scale**2 * variance)
        index = evidence + jnp.log(cells.safe_visits)
        return first_argmax(jnp.where(cells.tried, -index, jnp.inf)), state

    return Agent(
        lambda: NoisyCells.empty(num_contexts, num_actions), act, _update, _rate
    )


def posterior_sampling(
    num_contexts: int,
    num_actions: int,
    *,
    scale: Number = 0.7,
    prior_count: float = 1.0,
    prior_sd: float = 0.3,
) -> Agent:
    """Thompson sampling: argmax_a q(a) + scale sqrt(v(a)/n(a)) z(a), z normal.

    Args:
      num_contexts: X.
      num_actions: A = K + 1.
      scale: factor on posterior standard deviations; 1 samples the posterior itself.
      prior_count: degrees of freedom that a cell gets at the pooled variance.
      prior_sd: standard deviation of r - rho delta assumed before any data.

    Raises:
      ValueError: X or A is below 1, or a hyper-parameter is out of its range.

    Source: Thompson (1933), on relative rewards.
    """
    check_sizes(num_contexts, num_actions)
    check_numbers(scale=scale, prior_sd=prior_sd)
    check_numbers(positive=True, prior_count=prior_count)

    def act(state: NoisyCells, step: Step) -> tuple[Index, NoisyCells]:
        cells = state.cells(step.context)
        variance = state.variance(
            step.context, prior_count=prior_count, prior_sd=prior_sd
        )
        spread = scale * jnp.sqrt(variance / cells.safe_visits)
        sample = cells.value(state.greedy.rate) + spread * step.normals
        return first_argmax(jnp.where(cells.tried, sample, jnp.inf)), state

    return Agent(
        lambda: NoisyCells.empty(num_contexts, num_actions),
        act,
        _update,
        _rate,
        num_normals=num_actions,
    )
