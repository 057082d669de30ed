"""The state that every adapter shares: a rate estimator on the host side."""

import math
import threading
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.rates import empirical
from rpg_jax.types import RateEstimator, checked_batch


class RelativeReward:
    """Turns rewards and seconds into relative rewards, batch by batch.

    A batch is charged at the rate of the data before it: a batch that helped to fit its
    own price would be compared with itself. The first batch, with no data before it, is
    charged at ``initial_rate``, or at its own rate if that is None.

    Args:
      estimator: any ``RateEstimator``; sum of rewards over sum of seconds if None.
      initial_rate: reward per second charged before there is any data.

    Example:
      relative = RelativeReward(niw_slots(num_slots=64, by_context=True))
      relative([0.5, 0.0], [12.0, 3.0], context=[0, 1])
    """

    def __init__(
        self,
        estimator: RateEstimator | None = None,
        *,
        initial_rate: float | None = None,
    ):
        self._estimator = empirical() if estimator is None else estimator
        self._update = jax.jit(self._estimator.update)
        self._rate = jax.jit(self._estimator.rate)
        self._state = self._estimator.init()
        self._current = initial_rate
        # Trainers call reward functions from several threads.
        self._lock = threading.Lock()

    @property
    def rate(self) -> float:
        """Present estimate, in reward per second; 0 before any data."""
        return 0.0 if self._current is None else self._current

    def __call__(
        self,
        reward: np.ndarray,
        duration: np.ndarray,
        *,
        context: np.ndarray | None = None,
        action: np.ndarray | None = None,
        charged: np.ndarray | None = None,
    ) -> np.ndarray:
        """Relative rewards of a batch, which then joins the estimator's data.

        Args:
          reward: [B], at least 0 for doing nothing.
          duration: [B] measured seconds, > 0.
          context: [B] for estimators that use it (a prompt's or a chain's index).
          action: [B] likewise.
          charged: [B] seconds to charge instead of the measured ones, for failures; the
            estimator sees the measured ones.

        Returns:
          [B] float64 reward - rate * seconds.

        Raises:
          ValueError: shapes differ, a reward is not finite, or a duration is not finite
            and > 0; the message names the rows and the state is as before.
        """
        batch = checked_batch(reward, duration, context=context, action=action)
        seconds = np.asarray(duration if charged is None else charged, np.float64)
        if seconds.shape != batch.reward.shape or not np.isfinite(seconds).all():
            raise ValueError(
                f"charged must be {batch.reward.shape[0]} finite seconds, "
                f"got shape {seconds.shape}"
            )
        with self._lock:
            state = self._update(self._state, _padded(batch))
            refused = int(state.rejected) - int(self._state.rejected)
            if refused:
                raise ValueError(
                    f"the estimator refused {refused} rows: reward or duration too "
                    "large for its precision, or context or action out of its range"
                )
            fresh = float(self._rate(state, self.rate))
            if not math.isfinite(fresh):
                raise ValueError(f"the estimator's rate is {fresh}; nothing is charged")
            price = fresh if self._current is None else self._current
            self._state, self._current = state, fresh
        return np.asarray(reward, np.float64) - price * seconds

    def state_dict(self) -> dict[str, Any]:
        """Everything a checkpoint needs: arrays and a number, no code."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self._state)]
        return {"leaves": leaves, "rate": self._current}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned, for an estimator of the same sizes.

        Raises:
          ValueError: the state belongs to another estimator.
        """
        leaves, structure = jax.tree.flatten(self._state)
        shapes = [(np.shape(v), np.asarray(v).dtype) for v in leaves]
        got = [(np.shape(v), np.asarray(v).dtype) for v in saved["leaves"]]
        if shapes != got:
            raise ValueError(
                "the saved state does not fit this estimator: expected arrays "
                f"{shapes}, got {got}"
            )
        restored = [jnp.asarray(v) for v in saved["leaves"]]
        self._state = jax.tree.unflatten(structure, restored)
        self._current = saved["rate"]


def measured(found: Sequence[Sequence[float]], number: int) -> dict[str, Any]:
    """What an adapter's ``execute`` returned, as arguments of ``RelativeReward``.

    Args:
      found: (rewards, seconds[, contexts[, actions]]).
      number: completions.

    Raises:
      ValueError: another number of lists, or of entries.
    """
    names = ("reward", "duration", "context", "action")
    if not 2 <= len(found) <= len(names):
        raise ValueError(
            f"execute returned {len(found)} lists: want rewards, seconds and, if the "
            "estimator needs them, contexts and actions"
        )
    fields = dict(zip(names, found, strict=False))
    for name, values in fields.items():
        if len(values) != number:
            raise ValueError(
                f"execute returned {len(values)} {name}s for {number} completions"
            )
    return fields


def _padded(batch):
    """Rows up to the next power of two, masked out: few traces for many sizes."""
    size = batch.reward.shape[0]
    extra = (1 << max(size - 1, 0).bit_length()) - size
    # Padding looks like a row, so that no estimator divides by its 0 seconds.
    fill = batch._replace(
        context=jnp.zeros((extra, *batch.context.shape[1:]), batch.context.dtype),
        action=jnp.zeros(extra, batch.action.dtype),
        reward=jnp.zeros(extra, batch.reward.dtype),
        duration=jnp.ones(extra, batch.duration.dtype),
        mask=jnp.zeros(extra, bool),
    )
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), batch, fill)
