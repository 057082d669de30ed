"""The price that every adapter shares: rewards and seconds in, relative rewards out."""

from __future__ import annotations

import copy
import math
import os
import threading
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Shaped

from rpg_jax.adapters.objective import MaxAtK
from rpg_jax.adapters.own import Own
from rpg_jax.adapters.ranks import Gather, gather_none
from rpg_jax.adapters.state import read_state, write_state
from rpg_jax.forgetting import POOLED_MEMORY
from rpg_jax.types import RateEstimator, checked_rows


class Priced(NamedTuple):
    """A batch and its price, float64; NaN in masked-out rows."""

    score: Float[np.ndarray, " B"]  # reward - rate * seconds
    reward: Float[np.ndarray, " B"]  # what it is worth under the objective
    seconds: Float[np.ndarray, " B"]  # charged
    rate: float  # reward per second that they were charged at


class Rates(Protocol):
    """One price for many processes, such as ``RewardRateServer``."""

    @property
    def rate(self) -> float:
        """Present estimate, in reward per second; 0 before any data."""

    def charge(
        self, reward: Any, seconds: Any, *, step: int | None = None, update: bool = True
    ) -> float:
        """Take rows in; the price of their step."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore it."""


class RelativeReward:
    """Turns rewards and seconds into relative rewards, batch by batch.

    A batch is charged at the rate of the data before it: a batch that helped to fit its
    own price would be compared with itself. The first batch, with no data before it, is
    charged at ``initial_rate``, or at its own rate if that is None.

    The default price is the policy's own recent rate, sum of rewards over sum of
    seconds of about the last ``memory`` decisions. It follows a policy that learns, is
    computed in NumPy and starts no JAX backend.

    Args:
      estimator: any ``RateEstimator``; None for the policy's own recent rate.
      initial_rate: reward per second charged before there is any data.
      memory: decisions that the default price remembers.
      objective: ``MaxAtK(k)`` where the best answer counts and not the sum.
      gather: value -> that of all ranks. With ``ranks.gather_ranks`` every rank of a
        ``torch.distributed`` job charges the same price; all ranks must call together.
      server: keeps the price for several processes, in place of all of the above.

    Raises:
      ValueError: initial_rate is not finite, or a server comes with other settings.

    Example:
      relative = RelativeReward(niw_slots(num_slots=64, by_context=True))
      relative([0.5, 0.0], [12.0, 3.0], context=[0, 1])
    """

    def __init__(
        self,
        estimator: RateEstimator | None = None,
        *,
        initial_rate: float | None = None,
        memory: float = POOLED_MEMORY,
        objective: MaxAtK | None = None,
        gather: Gather | None = None,
        server: Rates | None = None,
    ):
        others = (estimator, initial_rate, objective, gather)
        if server is not None and any(other is not None for other in others):
            raise ValueError("a server has settings of its own: give them there")
        self._model: Any = Own(memory=memory)
        if estimator is not None:
            # Only here: the default price needs no compiled function.
            from rpg_jax.adapters.estimated import Estimated

            self._model = Estimated(estimator)
        self._objective = copy.deepcopy(objective)
        self._gather = gather_none if gather is None else gather
        self._server = server
        self._current = _finite_rate(initial_rate)
        # Trainers call reward functions from several threads.
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {k: v for k, v in vars(self).items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    @property
    def rate(self) -> float:
        """Present estimate, in reward per second; 0 before any data."""
        if self._server is not None:
            return self._server.rate
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
        step: int | None = None,
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
            nothing, for evaluation; no rows are gathered.
          step: the trainer's step, for a server.

        Returns:
          The relative rewards, with the rate and the seconds that were charged.

        Raises:
          ValueError: shapes differ, a reward is not finite, a duration is not finite
            and > 0, or the estimator needs a context or an action that is not given;
            the message names the rows and the state is as before.
        """
        reward, duration, keep = checked_rows(reward, duration, mask=mask)
        seconds = _charges(duration if charged is None else charged, keep)
        rows = {"reward": reward[keep], "duration": duration[keep]}
        given = {"context": context, "action": action}
        for name in self._model.needs:
            if given[name] is not None:
                rows[name] = _kept(given[name], keep)
        with self._lock:
            worth, price = self._charge(rows, update, step)
        earned, charge = np.full((2, keep.size), np.nan)
        earned[keep], charge[keep] = worth, seconds[keep]
        return Priced(earned - price * charge, earned, charge, price)

    def _charge(
        self, rows: dict[str, np.ndarray], update: bool, step: int | None
    ) -> tuple[Float[np.ndarray, " N"], float]:
        """What kept rows are worth, and their price. Holds the lock."""
        reward = rows["reward"]
        if self._server is not None:
            price = self._server.charge(
                reward, rows["duration"], step=step, update=update
            )
            return reward, price
        price = self.rate
        if update:
            everyone = self._gather(rows)
            if any(len(each["reward"]) for each in everyone):
                price = self._learn(everyone)
        return self._worth(reward), price

    def _learn(self, everyone: list[dict[str, np.ndarray]]) -> float:
        """Take in the rows of all ranks; returns what to charge them."""
        needs = [
            n for n in self._model.needs if not all(n in each for each in everyone)
        ]
        if needs:
            raise ValueError(
                f"this estimator needs {' and '.join(needs)} for every row: without, "
                "all of them would count as number 0"
            )
        columns = {
            name: np.concatenate([each[name] for each in everyone])
            for name in everyone[0]
        }
        before = copy.deepcopy(self._objective)
        if self._objective is not None:
            self._objective.add(columns["reward"])
            columns["reward"] = self._objective.worth(columns["reward"])
        try:
            state, fresh = self._model.learn(columns, self.rate)
        except ValueError:
            self._objective = before
            raise
        price = fresh if self._current is None else self._current
        self._model.state, self._current = state, fresh
        return price

    def _worth(self, reward: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        return reward if self._objective is None else self._objective.worth(reward)

    def state_dict(self) -> dict[str, Any]:
        """Everything a checkpoint needs: arrays and a number, no code."""
        if self._server is not None:
            return self._server.state_dict()
        with self._lock:
            leaves, current = self._model.leaves(), self._current
            if self._objective is not None:
                leaves += self._objective.leaves()
        return {"leaves": leaves, "rate": current}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned, for an estimator of the same sizes.

        Raises:
          ValueError: the state belongs to another estimator, or its rate is not finite.
        """
        if self._server is not None:
            self._server.load_state_dict(saved)
            return
        current = _finite_rate(saved["rate"])
        leaves = [np.asarray(leaf) for leaf in saved["leaves"]]
        with self._lock:
            want = [(leaf.shape, leaf.dtype) for leaf in self._model.leaves()]
            own, others = leaves[: len(want)], leaves[len(want) :]
            got = [(leaf.shape, leaf.dtype) for leaf in own]
            if want != got or (others and self._objective is None):
                raise ValueError(
                    "the saved state does not fit this estimator: expected arrays "
                    f"{want}, got {got} and {len(others)} more"
                )
            self._model.state = self._model.built(own)
            if self._objective is not None:
                self._objective.restore(others)
            self._current = current

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state as JSON, whole or not at all; see ``adapters.state``."""
        write_state(path, self.state_dict())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restore what ``save`` wrote.

        Raises:
          ValueError: the file holds something else, or another estimator's state.
        """
        self.load_state_dict(read_state(path))


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


def _kept(values: Any, keep: Bool[np.ndarray, " B"]) -> Shaped[np.ndarray, "N ..."]:
    """Counted rows of a column in which others may be None."""
    kept = np.asarray(values)[keep]
    return np.asarray(kept.tolist()) if kept.dtype == object else kept


def _finite_rate(rate: float | None) -> float | None:
    if rate is not None and not math.isfinite(rate):
        raise ValueError(f"a rate must be finite, got {rate}")
    return None if rate is None else float(rate)
