"""A JAX rate estimator in the form that ``RelativeReward`` keeps."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.types import Batch, RateEstimator, checked_batch


class Estimated:
    """An estimator, its state and its compiled functions.

    It computes on JAX's default device: beside a trainer of another framework set
    ``JAX_PLATFORMS=cpu``, or take the default price, which needs no device.

    Args:
        estimator: any ``RateEstimator``.
    """

    def __init__(self, estimator: RateEstimator) -> None:
        self.needs = estimator.needs
        self._update = jax.jit(estimator.update)
        self._rate = jax.jit(estimator.rate)
        self.state = estimator.init()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a JAX estimator is not pickled: give the reward function of another "
            "process a server, such as RewardRateServer().serve()"
        )

    def learn(self, columns: dict[str, np.ndarray], price: float) -> tuple[Any, float]:
        """The state and the rate after a batch; nothing is kept yet.

        Raises:
            ValueError: the estimator refused rows, or its rate is not finite.
        """
        state = self._update(self.state, _padded(_batch(columns)))
        refused = int(state.rejected) - int(self.state.rejected)
        if refused:
            raise ValueError(
                f"the estimator refused {refused} rows: reward or duration too "
                "large for its precision, or context or action out of its range"
            )
        fresh = float(self._rate(state, price))
        if not math.isfinite(fresh):
            raise ValueError(f"the estimator's rate is {fresh}; nothing is charged")
        return state, fresh

    def leaves(self) -> list[np.ndarray]:
        """The state as arrays."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)]

    def built(self, leaves: list[np.ndarray]) -> Any:
        """A state of arrays that fit it."""
        restored = [jnp.asarray(leaf) for leaf in leaves]
        return jax.tree.unflatten(jax.tree.structure(self.state), restored)


def _batch(columns: dict[str, np.ndarray]) -> Batch:
    """Rows that all count."""
    return checked_batch(
        columns["reward"],
        columns["duration"],
        context=columns.get("context"),
        action=columns.get("action"),
    )


def _padded(batch: Batch) -> Batch:
    """Padding to a power of two: few traces for many sizes."""
    rows = np.arange(len(np.asarray(batch.mask)))
    extra = (1 << (len(rows) - 1).bit_length()) - len(rows)
    # Padding looks like a row, so that no estimator divides by its 0 seconds.
    index = np.concatenate([rows, np.repeat(rows[:1], extra)])
    padding = np.arange(len(index)) >= len(rows)
    taken: Batch = jax.tree.map(lambda field: np.asarray(field)[index], batch)
    return taken._replace(mask=jnp.asarray(~padding), padding=jnp.asarray(padding))
