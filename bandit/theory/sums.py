"""C-UCB's rate from the cells' sums is inconsistent; the plug-in rate is not."""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bandit import envs
from bandit.theory.problems import Check
from rpg_jax import dinkelbach


class RateOfSums(NamedTuple):
    """C-UCB's rate estimate beside the consistent one as visits grow."""

    visits: Float[np.ndarray, " points"]
    #: max over policies of R_u / D_u from cells' sums
    sums_rate: Float[np.ndarray, " points"]
    #: Dinkelbach on the cells' means
    plug_in_rate: Float[np.ndarray, " points"]
    best_rate: float
    subset_rate: float  # best rate over subsets of contexts


def rate_of_sums(num_arms: int = 5) -> RateOfSums:
    """On E1's means: sums weigh a policy's contexts by how often its cells were played.

    The greedy arm of a context has been played t / X times, every other arm 20 log t
    times. A policy that takes a rare arm in a poor context all but leaves that context
    out, so the maximum tends to the best rate over subsets of contexts; cells' means
    have no such weights. No noise: the difference is bias.
    """
    env = envs.make_env("E1", num_arms)
    reward = np.asarray(env.mean_reward, np.float64)
    duration = np.asarray(env.mean_duration, np.float64)
    size, arms = reward.shape
    best = envs.optimal_rate(reward, duration)
    greedy = np.argmax(reward - best * duration, axis=1)
    own = np.arange(size)
    policies = np.array(list(itertools.product(range(arms), repeat=size)))
    cells = (own[None, :], policies)
    visits = np.geomspace(1e3, 1e9, 25)
    sums = []
    for t in visits:
        count = np.full((size, arms), 20 * np.log(t))
        count[own, greedy] = t / size
        rates = (count * reward)[cells].sum(1) / (count * duration)[cells].sum(1)
        sums.append(rates.max())
    subsets = [
        list(s) for n in range(1, size + 1) for s in itertools.combinations(own, n)
    ]
    subset = max(
        reward[s, greedy[s]].sum() / duration[s, greedy[s]].sum() for s in subsets
    )
    plug_in = dinkelbach.optimal_rate(
        jnp.asarray(reward, jnp.float32), jnp.asarray(duration, jnp.float32)
    )
    return RateOfSums(
        visits=visits,
        sums_rate=np.array(sums),
        plug_in_rate=np.full(len(visits), float(plug_in.rate)),
        best_rate=float(best),
        subset_rate=float(subset),
    )


def check_rate_of_sums() -> tuple[list[Check], RateOfSums]:
    """C-UCB's rate is inconsistent with more than one context."""
    run = rate_of_sums()
    excess = run.sums_rate[-1] / run.best_rate - 1
    gap = abs(run.sums_rate[-1] / run.subset_rate - 1)
    plug_in = abs(run.plug_in_rate[-1] / run.best_rate - 1)
    return [
        Check(
            "C-UCB's rate",
            f"excess over rho* = {run.best_rate:.4f} after 1e9 decisions, no noise",
            excess,
            "> 0.05: inconsistent",
            excess > 0.05,
        ),
        Check(
            "C-UCB's rate",
            f"distance to the best rate over subsets, {run.subset_rate:.4f}",
            gap,
            "< 0.01",
            gap < 0.01,
        ),
        Check(
            "C-UCB's rate",
            "relative error of the plug-in rate on the same counts",
            plug_in,
            "< 1e-6",
            plug_in < 1e-6,
        ),
    ], run
