"""Ways to find C-UCB's rate lambda inside an agent: bounds, a pool, fresh policies."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from bandit import cucb, cucb_certified
from bandit.base import CellSums, Index, Number, Scalar, Step
from bandit.ucb import log_one_plus_policies, ucb_action

#: Contexts up to which the maximum over policies is exact.
MAX_EXACT_CONTEXTS = 4
#: Decisions after which the sampled policies' sums are made again.
RECOUNT_EVERY = 1024
Rate = Literal["exact", "approximate", "pool", "fresh"]


def _noise_key(step: Step) -> Key[Array, ""]:
    """A key of the decision's own, from its uniform draw."""
    bits = jax.lax.bitcast_convert_type(step.uniform, jnp.uint32)
    return jax.random.fold_in(jax.random.key(1), bits)


class Method(NamedTuple):
    """One way to find lambda; each function is of one trial.

    Attributes:
      empty: () -> the search's state before any decision.
      level: (search, table, penalty, L, context's cells, step) -> lambda, search, and
        whether an exact search ran.
      follow: (search, sample) -> search.
      log_policies: log(1 + |U|) inside lambda.
    """

    empty: Callable[[], Any]
    level: Callable[
        [Any, Float[Array, "contexts 3 actions"], Scalar, Scalar, CellSums, Step],
        tuple[Scalar, Any, Scalar],
    ]
    follow: Callable[[Any, "Sample"], Any]
    log_policies: float


class Sample(NamedTuple):
    """A decision's outcome; rows are of its context, before and after it.

    The table before is not here: whoever reads it after the update makes XLA copy it.
    """

    step: Step
    action: Index
    reward: Scalar
    duration: Scalar
    old_row: Float[Array, "3 actions"]
    new_row: Float[Array, "3 actions"]
    table: Float[Array, "contexts 3 actions"]
    penalty: Scalar


def _bounded(num_contexts: int, num_actions: int, c2: Number, *, exact: bool) -> Method:
    """lambda enclosed by bounds, searched exactly where a decision needs it."""

    def level(
        search: cucb_certified.RateBounds,
        table: Float[Array, "contexts 3 actions"],
        penalty: Scalar,
        log_term: Scalar,
        cells: CellSums,
        step: Step,
    ) -> tuple[Scalar, cucb_certified.RateBounds, Scalar]:
        del step
        lower, upper = search.enclose(table, penalty)
        if not exact:
            return lower, search, jnp.zeros(())
        # Where an action is untried both arg maxes are the first untried one.
        low = ucb_action(cells, lower, c2, log_term)
        high = ucb_action(cells, upper, c2, log_term)
        # An infinite rate would make all actions equal, and prove nothing.
        needed = (low != high) | (jnp.isinf(upper) & cells.tried.all())
        found, search = cucb_certified.search(search, table, penalty, needed)
        return jnp.where(needed, found, lower), search, needed.astype(jnp.float32)

    def follow(
        search: cucb_certified.RateBounds, sample: Sample
    ) -> cucb_certified.RateBounds:
        return search.add(
            sample.table,
            sample.step.context,
            sample.action,
            sample.reward,
            sample.duration,
            sample.penalty,
        )

    return Method(
        lambda: cucb_certified.RateBounds.empty(num_contexts),
        level,
        follow,
        log_one_plus_policies(num_contexts, num_actions),
    )


def _pooled(num_contexts: int, num_policies: int) -> Method:
    """lambda over random policies that are redrawn in the visited context only."""

    def level(
        search: cucb.Pool,
        table: Float[Array, "contexts 3 actions"],
        penalty: Scalar,
        *_: object,
    ) -> tuple[Scalar, cucb.Pool, Scalar]:
        del table
        return cucb.pool_rate(search, penalty), search, jnp.zeros(())

    def follow(search: cucb.Pool, sample: Sample) -> cucb.Pool:
        context = sample.step.context
        uniform = jax.random.uniform(_noise_key(sample.step))
        search = cucb.refresh_pool(
            search, uniform, context, sample.old_row, sample.new_row
        )
        # t is shared by all trials, so under vmap this stays a branch.
        counted: cucb.Pool = jax.lax.cond(
            sample.step.t % RECOUNT_EVERY == 0,
            lambda pool: cucb.recount_pool(pool, sample.table),
            lambda pool: pool,
            search,
        )
        return counted

    return Method(
        lambda: cucb.empty_pool(num_contexts, num_policies),
        level,
        follow,
        log_one_plus_policies(1, cucb.NUM_SAMPLED),
    )


def _fresh() -> Method:
    """lambda over random policies drawn again at every decision."""

    def level(
        search: tuple[()],
        table: Float[Array, "contexts 3 actions"],
        penalty: Scalar,
        log_term: Scalar,
        cells: CellSums,
        step: Step,
    ) -> tuple[Scalar, tuple[()], Scalar]:
        del log_term, cells
        rate = cucb.sampled_rate(_noise_key(step), table, penalty)
        return rate, search, jnp.zeros(())

    return Method(
        lambda: (),
        level,
        lambda search, sample: search,
        log_one_plus_policies(1, cucb.NUM_SAMPLED),
    )


def method_of(
    rate: Rate | None,
    num_contexts: int,
    num_actions: int,
    c2: Number,
    num_policies: int,
) -> Method:
    """How lambda is found; None is exact where that is possible.

    Raises:
      ValueError: an unknown rate, or 'exact' beyond 4 contexts.
    """
    if rate is None:
        rate = "exact" if num_contexts <= MAX_EXACT_CONTEXTS else "pool"
    if rate not in get_args(Rate):
        raise ValueError(f"unknown rate {rate!r}: choose from {get_args(Rate)}")
    if rate == "exact" and num_contexts > MAX_EXACT_CONTEXTS:
        raise ValueError(
            f"the exact maximum is for up to {MAX_EXACT_CONTEXTS} contexts, not "
            f"{num_contexts}: use rate='pool'"
        )
    if rate == "pool":
        return _pooled(num_contexts, num_policies)
    if rate == "fresh":
        return _fresh()
    return _bounded(num_contexts, num_actions, c2, exact=rate == "exact")
