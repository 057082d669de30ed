"""The estimators that ``--rate`` can name, as the loop feeds them.

Each is a factory ``(options, chains) -> LoopEstimator``. One of your own is registered
by ``experiments.config.rate.register_estimator``; see docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import rpg_jax
from experiments.config.rate import RateOptions, get_estimator
from rpg_jax.types import RateEstimator

_HIDDEN = 8


class LoopEstimator(NamedTuple):
    """An estimator and how the loop feeds it.

    A batch's context is whether the attempt failed (0 or 1), or its chain with
    ``--rate-data=slots``; its action is always 0.
    """

    # Shares of (valid, failed) -> the estimator; its state does not depend on them.
    build: Callable[[Any], RateEstimator]
    # Keeps its state from batch to batch. Others are fitted afresh to the best attempts
    # until the choice of attempts and their rate agree.
    running: bool = False
    # Weighs failures by their share. Others are fed as many as go with that share.
    weighted: bool = False
    # Contexts are one-hot rows, and the first data fix its units.
    network: bool = False


def loop_estimator(options: RateOptions, chains: int) -> LoopEstimator:
    """What the options name.

    Args:
        options: estimator and data.
        chains: slots of the run.

    Raises:
        ValueError: there is no such estimator, or it does not go with the data.
        TypeError: its factory returned something else.
    """
    made = get_estimator(options.estimator)(options, chains)
    if isinstance(made, RateEstimator):
        return LoopEstimator(lambda share: made)
    if not isinstance(made, LoopEstimator):
        raise TypeError(
            f"the factory of {options.estimator!r} must return a RateEstimator or a "
            f"LoopEstimator, got {type(made).__name__}"
        )
    return made


def empirical(options: RateOptions, chains: int) -> LoopEstimator:
    """Reward over seconds of what it was fed."""
    del options, chains
    return LoopEstimator(lambda share: rpg_jax.empirical(forgetting=1.0))


def robbins_monro(options: RateOptions, chains: int) -> LoopEstimator:
    """A step per batch towards the root of r - rho delta."""
    del chains
    return LoopEstimator(
        lambda share: rpg_jax.robbins_monro(options.step_size), running=True
    )


def niw(options: RateOptions, chains: int) -> LoopEstimator:
    """Posterior means of attempts and failures, or the paper's percentile of slots.

    Raises:
        ValueError: slots of one chain, whose spread is unknown.
    """
    if options.data != "slots":
        return LoopEstimator(
            lambda share: rpg_jax.niw(2, 1, context_probs=share, forgetting=1.0),
            weighted=True,
        )
    if chains < 2:
        raise ValueError("--rate-data=slots needs two chains or more")
    slots = rpg_jax.niw_slots(
        chains,
        forgetting=options.forgetting,
        quantile=options.quantile,
        by_context=True,
        age=None,  # lifetime sums
        method="analytic",  # of the rate in its state, which is not the one read below
    )._replace(rate=lambda state, rho: _sampled(options, chains, state))
    return LoopEstimator(lambda share: slots, weighted=True)


def _sampled(options: RateOptions, chains: int, state: Any) -> jax.Array:
    """The paper's percentile of 1,000 simulated batches, with a key of its own.

    The deterministic quantile of ``niw_slots`` is only close where log durations spread
    by less than about 1.2; crashes of 0.1 s beside long runs spread by more.
    """
    count = jnp.sum(state.filled, dtype=jnp.int32)
    rate = rpg_jax.ratio_quantile_sampled(
        jax.random.fold_in(jax.random.key(0), state.step),
        state.niw,
        count,
        level=options.quantile,
        max_count=chains,
    )
    return jnp.where(count >= 2, jnp.maximum(rate, 0), 0)


def neural(options: RateOptions, chains: int) -> LoopEstimator:
    """A small network of mean reward and seconds, trained a little per batch."""
    del chains
    from rpg_jax.network import MeanNetwork  # flax, for those who name it

    net = MeanNetwork(hidden=_HIDDEN)
    keys = jax.random.split(jax.random.key(0), 2)
    layers = {
        "hidden": {
            "kernel": jax.random.normal(keys[0], (2, _HIDDEN)),
            "bias": jnp.zeros(_HIDDEN),
        },
        "out": {"kernel": jax.random.normal(keys[1], (_HIDDEN, 2)) / _HIDDEN},
    }
    params = {"params": layers}
    optimizer = optax.adam(1e-2)

    def build(share: Any) -> RateEstimator:
        return rpg_jax.neural(
            net.apply,
            params,
            optimizer,
            num_steps=options.num_steps,
            units="first",  # what the records of runs mean
            contexts=jnp.eye(2),
            context_probs=share,
        )

    return LoopEstimator(build, running=True, weighted=True, network=True)
