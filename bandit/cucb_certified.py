"""C-UCB's exact decision without an exact search at every decision.

C-UCB prices time at lambda_t = max_u f_t(u), f(u) = R_u/D_u - sqrt(C/T_u), with
C = 2 c1 L_t. A decision needs lambda only as far as the arg max of its index depends on
it. Two bounds that cost O(A + X) a decision enclose lambda:

*Lower.* The value of an incumbent policy, improved in the visited context after each
sample (one coordinate of coordinate ascent).

*Upper.* C grows with t, so f falls for every policy that a sample leaves as it was. A
sample (r, d) in a cell with n samples and D seconds changes only policies through the
cell. If f(u) <= U, then R_u <= D_u (U + sqrt(C/T_u)), and after the sample

    f'(u) <= U + sqrt(C/T_u) - sqrt(C/(T_u + 1)) + (r - d (U + sqrt(C/T_u)))/(D_u + d)
          <= U + sqrt(C/n) - sqrt(C/(n + 1)) + max(0, r - d U)/(D + d),

since T_u >= n and D_u >= D. A cell's first sample leaves no such bound (U = inf). In
any case f(u) <= max_{x,a} R/D - sqrt(C/sum_x max_a n), which settles large C at once.

The index of an action is linear in lambda, so an action that is best at both bounds is
best at every rate between them. Only where the two arg maxes differ is the exact search
of ``cucb_exact`` run, for those trials alone; it makes both bounds equal to lambda.
Every decision is therefore the one that the exact maximum gives, up to rounding.
"""

from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int

from bandit.base import Flag, Index, Scalar, check_sizes, first_argmax
from bandit.cucb_exact import exact_max
from bandit.cucb_policies import penalised_rate

#: Least value of lambda.
FLOOR = 1e-9
#: Trials that are searched together.
GROUP = 16
# Two float32 roundings of the bound at every update.
_ROUNDING = 2.4e-7


class RateBounds(NamedTuple):
    """What encloses lambda between searches.

    Attributes:
      policy: the incumbent.
      upper: U, at least lambda.
      top_ratio: max_a R/D of each context's tried cells, 0 before any.
      top_count: max_a n of each context.
    """

    policy: Int[Array, " contexts"]
    upper: Scalar
    top_ratio: Float[Array, " contexts"]
    top_count: Float[Array, " contexts"]

    @classmethod
    def empty(cls, num_contexts: int) -> "RateBounds":
        """Before any decision: nothing is known from above."""
        check_sizes(num_contexts, 1)
        zeros = jnp.zeros(num_contexts)
        policy = jnp.zeros(num_contexts, jnp.int32)
        return cls(policy, jnp.asarray(jnp.inf), zeros, zeros)

    def enclose(
        self, table: Float[Array, "contexts 3 actions"], penalty: Scalar
    ) -> tuple[Scalar, Scalar]:
        """Lower and upper bound of lambda, both at least 1e-9.

        Args:
          table: cell sums (reward, duration, count).
          penalty: C = 2 c1 L.
        """
        chex.assert_shape(table, (self.policy.shape[0], 3, None))
        chosen = table[jnp.arange(table.shape[0]), :, self.policy]
        sum_r, sum_d, visits = chosen.sum(axis=0)
        lower = jnp.maximum(penalised_rate(sum_r, sum_d, visits, penalty), FLOOR)
        total = jnp.maximum(self.top_count.sum(), 1.0)
        crude = self.top_ratio.max() * (1 + _ROUNDING) - jnp.sqrt(penalty / total)
        upper = jnp.minimum(self.upper, crude + _ROUNDING * jnp.sqrt(penalty / total))
        return lower, jnp.maximum(upper, lower)

    def add(
        self,
        table: Float[Array, "contexts 3 actions"],
        context: Index,
        action: Index,
        reward: Scalar,
        duration: Scalar,
        penalty: Scalar,
    ) -> "RateBounds":
        """The bounds after a sample.

        Args:
          table: cell sums with the sample in them.
          context: x.
          action: a.
          reward: r.
          duration: delta in seconds.
          penalty: C at the decision.
        """
        row = table[context]
        count, seconds = row[2, action], row[1, action]
        before = jnp.maximum(count - 1.0, 1.0)
        # sqrt(C/n) - sqrt(C/(n+1)) without the cancellation.
        root = jnp.sqrt(before) + jnp.sqrt(count)
        relief = jnp.sqrt(penalty / (before * count)) / root
        known = jnp.where(jnp.isfinite(self.upper), self.upper, 0.0)
        growth = relief + jnp.maximum(reward - duration * known, 0.0) / seconds
        upper = (self.upper + growth) * (1 + _ROUNDING)
        upper = jnp.where(count > 1.0, upper, jnp.inf)
        chosen = table[jnp.arange(table.shape[0]), :, self.policy]
        rest = chosen.sum(axis=0) - chosen[context]
        sum_r, sum_d, visits = rest[:, None] + row
        values = penalised_rate(sum_r, sum_d, visits, penalty)
        tried = row[2] > 0
        best = first_argmax(jnp.where(tried, values, -jnp.inf))
        ratio = jnp.where(tried, row[0] / jnp.where(tried, row[1], 1.0), 0.0).max()
        return RateBounds(
            policy=self.policy.at[context].set(best),
            upper=upper,
            top_ratio=self.top_ratio.at[context].set(ratio),
            top_count=self.top_count.at[context].set(row[2].max()),
        )


#: Value [N] and policy [N, X] of each trial.
_Found = tuple[Float[Array, " trials"], Int[Array, "trials contexts"]]


@custom_vmap
def _search(
    table: Float[Array, "trials contexts 3 actions"],
    penalty: Float[Array, " trials"],
    policy: Int[Array, "trials contexts"],
    needed: Bool[Array, " trials"],
) -> _Found:
    """Exact search of the needed trials, GROUP at a time; trials first."""
    trials = table.shape[0]
    size = min(GROUP, trials)
    State = tuple[Array, Array, Array]

    def group(state: State) -> State:
        value, policy, pending = state
        index = jnp.nonzero(pending, size=size, fill_value=trials)[0].astype(jnp.int32)
        own = jnp.minimum(index, trials - 1)  # padding repeats a trial, then drops
        sum_r, sum_d, visits = jnp.transpose(table[own], (2, 1, 3, 0))
        found, best, _ = exact_max(
            sum_r, sum_d, visits, penalty[own], policy[own].T, floor=FLOOR, lanes=8
        )
        return (
            value.at[index].set(found, mode="drop"),
            policy.at[index].set(best.T, mode="drop"),
            pending.at[index].set(False, mode="drop"),
        )

    state = (jnp.zeros_like(penalty), policy, needed)
    value, policy, _ = jax.lax.while_loop(lambda s: s[2].any(), group, state)
    return value, policy


@_search.def_vmap
def _search_rule(
    axis_size: int, in_batched: Sequence[bool], *args: Array
) -> tuple[_Found, tuple[bool, bool]]:
    whole = [
        arg if batched else jnp.broadcast_to(arg[None], (axis_size, *arg.shape))
        for arg, batched in zip(args, in_batched, strict=True)
    ]
    trials = whole[1].shape[1]
    flat = [arg.reshape(axis_size * trials, *arg.shape[2:]) for arg in whole]
    value, policy = _search(*flat)
    shape = (axis_size, trials)
    return (value.reshape(shape), policy.reshape(*shape, -1)), (True, True)


def search(
    bounds: RateBounds,
    table: Float[Array, "contexts 3 actions"],
    penalty: Scalar,
    needed: Flag,
) -> tuple[Scalar, RateBounds]:
    """lambda by exact search where needed, and bounds that say so; vmap it.

    Args:
      bounds: of one trial.
      table: cell sums, X <= 4.
      penalty: C = 2 c1 L.
      needed: whether to search.

    Returns:
      lambda (0 where not searched) and the bounds.
    """
    value, policy = _search(
        table[None], penalty[None], bounds.policy[None], needed[None]
    )
    upper = jnp.where(needed, value[0] * (1 + _ROUNDING), bounds.upper)
    policy = jnp.where(needed, policy[0], bounds.policy)
    return value[0], bounds._replace(policy=policy, upper=upper)
