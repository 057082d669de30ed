"""The state that every adapter shares: a rate estimator on the host side."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Shaped

from rpg_jax.rates import empirical
from rpg_jax.rewards import relative_reward
from rpg_jax.types import Batch, RateEstimator, checked_batch


class Priced(NamedTuple):
    """A batch and its price, float64; NaN in masked-out rows."""

    score: Float[np.ndarray, " B"]  # reward - rate * seconds
    reward: Float[np.ndarray, " B"]
    seconds: Float[np.ndarray, " B"]  # charged
    rate: float  # reward per second that they were charged at


class RelativeReward:
    """Turns rewards and seconds into relative rewards, batch by batch.

    A batch is charged at the rate of the data before it: a batch that helped to fit its
    own price would be compared with itself. The first batch, with no data before it, is
    charged at ``initial_rate``, or at its own rate if that is None.

    Args:
      estimator: any ``RateEstimator``; sum of rewards over sum of seconds if None.
      initial_rate: reward per second charged before there is any data.

    Raises:
      ValueError: initial_rate is not finite.

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
        self._current = _finite_rate(initial_rate)
        # Trainers call reward functions from several threads.
        self._lock = threading.Lock()

    @property
    def rate(self) -> float:
        """Present estimate, in reward per second; 0 before any data."""
        return 0.0 if self._current is None else self._current

    def __call__(
        self,
        reward: Float[np.ndarray, " B"],
        duration: Float[np.ndarray, " B"],
        **options: Any,
    ) -> Float[np.ndarray, " B"]:
        """Relative rewards of a batch: the score of ``priced``, with its arguments."""
        return self.priced(reward, duration, **options).score

    def priced(
        self,
        reward: Float[np.ndarray, " B"],
        duration: Float[np.ndarray, " B"],
        *,
        context: Shaped[np.ndarray, "B ..."] | None = None,
        action: Shaped[np.ndarray, " B"] | None = None,
        charged: Float[np.ndarray, " B"] | None = None,
        mask: Bool[np.ndarray, " B"] | None = None,
        update: bool = True,
    ) -> Priced:
        """Relative rewards of a batch, which then joins the estimator's data.

        Args:
          reward: [B], at least 0 for doing nothing.
          duration: [B] measured seconds, > 0.
          context: [B] for estimators that use it (a prompt's or a chain's index).
          action: [B] likewise.
          charged: [B] seconds >= 0 to charge instead of the measured ones, for
            failures; the estimator sees the measured ones.
          mask: [B] bool, false where the machinery failed and not the attempt: such
            rows are not checked, and the estimator never sees them. All rows if None.
          update: false charges at the present rate (0 before any data) and learns
            nothing, for evaluation.

        Returns:
          The relative rewards, with the rate and the seconds that were charged.

        Raises:
          ValueError: shapes differ, a reward is not finite, a duration is not finite
            and > 0, or the estimator needs a context or an action that is not given;
            the message names the rows and the state is as before.
        """
        batch = checked_batch(
            reward, duration, context=context, action=action, mask=mask
        )
        keep = np.asarray(batch.mask)
        seconds = _charges(duration if charged is None else charged, keep)
        learns = update and bool(keep.any())
        given = {"context": context, "action": action}
        needs = [n for n in self._estimator.needs if given.get(n, n) is None]
        if learns and needs:
            raise ValueError(
                f"this estimator needs {' and '.join(needs)} for every row: without, "
                "all of them would count as number 0"
            )
        with self._lock:
            price = self.rate
            if learns:
                price = self._learn(batch)
        reward = np.where(keep, np.asarray(reward, np.float64), 0.0)
        seconds = np.where(keep, seconds, 0.0)
        score = relative_reward(reward, seconds, price)
        score, reward, seconds = (
            np.where(keep, v, np.nan) for v in (score, reward, seconds)
        )
        return Priced(score, reward, seconds, price)

    def _learn(self, batch: Batch) -> float:
        """Take in a batch that has rows; returns what to charge it. Holds the lock."""
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
        return price

    def state_dict(self) -> dict[str, Any]:
        """Everything a checkpoint needs: arrays and a number, no code."""
        with self._lock:
            state, current = self._state, self._current
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
        return {"leaves": leaves, "rate": current}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned, for an estimator of the same sizes.

        Raises:
          ValueError: the state belongs to another estimator, or its rate is not finite.
        """
        current = _finite_rate(saved["rate"])
        restored = [jnp.asarray(v) for v in saved["leaves"]]
        with self._lock:
            leaves, structure = jax.tree.flatten(self._state)
            shapes = [(np.shape(v), np.asarray(v).dtype) for v in leaves]
            got = [(np.shape(v), np.asarray(v).dtype) for v in saved["leaves"]]
            if shapes != got:
                raise ValueError(
                    "the saved state does not fit this estimator: expected arrays "
                    f"{shapes}, got {got}"
                )
            self._state = jax.tree.unflatten(structure, restored)
            self._current = current


def measured(
    found: Sequence[Sequence[float]] | Mapping[str, Sequence[float]], number: int
) -> dict[str, Any]:
    """What an adapter's ``execute`` returned, as arguments of ``RelativeReward``.

    Args:
      found: (rewards, seconds[, contexts[, actions]]), or a dict with ``reward`` and
        ``duration`` and, optionally, ``context``, ``action``, ``charged`` and ``mask``.
      number: completions.

    Raises:
      ValueError: another number of lists, or of entries, or other keys.
    """
    names = ("reward", "duration", "context", "action")
    if isinstance(found, Mapping):
        fields = {name: value for name, value in found.items() if value is not None}
        if not {"reward", "duration"} <= set(fields) <= {*names, "charged", "mask"}:
            raise ValueError(
                f"execute returned a dict of {sorted(fields)}: want reward, duration "
                "and, if there is need, context, action, charged and mask"
            )
    elif not 2 <= len(found) <= len(names):
        raise ValueError(
            f"execute returned {len(found)} lists: want rewards, seconds and, if the "
            "estimator needs them, contexts and actions"
        )
    else:
        fields = dict(zip(names, found, strict=False))
    for name, values in fields.items():
        if len(values) != number:
            raise ValueError(
                f"execute returned {len(values)} {name}s for {number} completions"
            )
    return fields


def _charges(
    seconds: Float[np.ndarray, " B"], keep: Bool[np.ndarray, " B"]
) -> Float[np.ndarray, " B"]:
    """Charged seconds in float64; an error where a counted row has none."""
    seconds = np.asarray(seconds, np.float64)
    if (
        seconds.shape != keep.shape
        or not (np.isfinite(seconds) & (seconds >= 0))[keep].all()
    ):
        raise ValueError(
            f"charged must be {keep.size} finite seconds >= 0, "
            f"got shape {seconds.shape}"
        )
    return seconds


def _finite_rate(rate: float | None) -> float | None:
    if rate is not None and not math.isfinite(rate):
        raise ValueError(f"a rate must be finite, got {rate}")
    return None if rate is None else float(rate)


def _padded(batch: Batch) -> Batch:
    """The masked-in rows, and padding to a power of two: few traces for many sizes."""
    rows = np.flatnonzero(np.asarray(batch.mask))
    extra = (1 << (len(rows) - 1).bit_length()) - len(rows)
    # Padding looks like a row, so that no estimator divides by its 0 seconds.
    index = np.concatenate([rows, np.repeat(rows[:1], extra)])
    padding = np.arange(len(index)) >= len(rows)
    taken: Batch = jax.tree.map(lambda field: np.asarray(field)[index], batch)
    return taken._replace(mask=jnp.asarray(~padding), padding=jnp.asarray(padding))
