"""One price for all threads, processes and machines that compute rewards.

    server = RewardRateServer(rows_per_step=256)
    service = server.serve()  # other processes: service.client, which pickles
    price = service.client().charge([0.5], [12.0])

Who computes rewards one by one knows no batch. The server is told when a step ends: by
the trainer's step number, or by the number of rows of a step. All rows of a step are
charged the same price, that of the steps before it, whatever order they come in; sums
are exact, so that the order changes no bit of the next price either.
"""

from __future__ import annotations

import collections
import math
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpg_jax.adapters.own import Column, ExactSum, OwnState, check_memory, own_update
from rpg_jax.adapters.state import read_state, write_state
from rpg_jax.forgetting import POOLED_MEMORY

if TYPE_CHECKING:
    from rpg_jax.adapters.service import Service

# Steps whose price is kept for rows that come late.
STEPS_KEPT = 64


class RewardRateServer:
    """The policy's own recent rate, for many callers at once; thread-safe.

    Without ``rows_per_step`` and without step numbers every call is a step, as in
    ``RelativeReward``: the first is charged at its own rate. Otherwise the rows of the
    first step are charged ``initial_rate``, or 0.

    Args:
        memory: decisions that the average remembers.
        initial_rate: reward per second charged before there is any data.
        rows_per_step: rows after which a step ends, such as prompts times answers.
        path: file to keep the state in: read if it is there, written after every step.

    Raises:
        ValueError: a setting out of its range, or a file that holds something else.
    """

    def __init__(
        self,
        *,
        memory: float = POOLED_MEMORY,
        initial_rate: float | None = None,
        rows_per_step: int | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        if rows_per_step is not None and rows_per_step < 1:
            raise ValueError(f"rows_per_step must be at least 1, got {rows_per_step}")
        if initial_rate is not None and not math.isfinite(initial_rate):
            raise ValueError(f"a rate must be finite, got {initial_rate}")
        self.memory = check_memory(memory)
        self.rows_per_step = rows_per_step
        self._path = path
        self._lock = threading.Lock()
        self._state = OwnState()
        self._current = initial_rate
        self._prices: collections.OrderedDict[int, float] = collections.OrderedDict()
        self._counts = {"rows": 0, "skipped": 0, "steps": 0}
        self._open()
        if path is not None and Path(path).exists():
            self.load(path)

    @property
    def rate(self) -> float:
        """What the next step is charged, in reward per second; 0 before any data."""
        with self._lock:
            return self._shown()

    def counts(self) -> dict[str, int]:
        """Rows taken in, rows skipped (not finite), steps ended."""
        with self._lock:
            return dict(self._counts)

    def charge(
        self,
        reward: Column | float,
        seconds: Column | float,
        *,
        step: int | None = None,
        update: bool = True,
    ) -> float:
        """Take rows in; the price of their step, in reward per second.

        Args:
            reward: [N] or a number. Rows that are not finite are skipped and counted.
            seconds: likewise, >= 0.
            step: the trainer's step; a new one ends the one before it. Rows that come
                late are charged what their step was.
            update: false takes nothing in, for evaluation.

        Raises:
            ValueError: shapes differ, or seconds are below 0.
        """
        earned, spent, skipped = _columns(reward, seconds)
        with self._lock:
            if not update:
                return self._shown()
            self._counts["skipped"] += skipped
            if step is None and self.rows_per_step is None:
                return self._whole(earned, spent)
            price = self._price_of(step)
            self._add(earned, spent)
            if self.rows_per_step and self._number >= self.rows_per_step:
                self._close()
            return price

    def _shown(self) -> float:
        return 0.0 if self._current is None else self._current

    def _open(self) -> None:
        """Start a step."""
        self._earned, self._seconds, self._number = ExactSum(), ExactSum(), 0

    def _add(self, earned: Column, spent: Column) -> None:
        self._earned.add(earned)
        self._seconds.add(spent)
        self._number += len(earned)
        self._counts["rows"] += len(earned)

    def _whole(self, earned: Column, spent: Column) -> float:
        """A call that is a step; the first is charged at its own rate."""
        first = self._current is None
        price = self._shown()
        self._add(earned, spent)
        self._close()
        return self._shown() if first else price

    def _price_of(self, step: int | None) -> float:
        """The price of a step; one that is new ends the one before it."""
        if step is None:
            return self._shown()
        if step not in self._prices:
            self._close()
            self._prices[step] = self._shown()
            if len(self._prices) > STEPS_KEPT:
                self._prices.popitem(last=False)
        return self._prices[step]

    def _closed(self) -> OwnState:
        """The state with the open step in it."""
        return own_update(
            self._state,
            earned=self._earned.value,
            seconds=self._seconds.value,
            number=self._number,
            memory=self.memory,
        )

    def _close(self) -> None:
        """End a step: its rows are in the price of the next one."""
        if not self._number:
            return
        self._state = self._closed()
        self._current = self._state.rate
        self._counts["steps"] += 1
        self._open()
        if self._path is not None:
            write_state(self._path, self._saved())

    def _saved(self) -> dict[str, Any]:
        state = self._closed()
        current = state.rate if self._number else self._current
        return {"leaves": [np.asarray(state, np.float64)], "rate": current}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs; a step that is open counts as ended in it."""
        with self._lock:
            return self._saved()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned; the open step starts anew.

        Raises:
            ValueError: the state belongs to another estimator.
        """
        leaves = saved["leaves"]
        if len(leaves) != 1 or np.shape(leaves[0]) != (3,):
            raise ValueError("the saved state is not that of the policy's own rate")
        with self._lock:
            self._state = OwnState(*np.asarray(leaves[0], np.float64).tolist())
            self._current = saved["rate"]
            self._prices.clear()
            self._open()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state as JSON, whole or not at all."""
        write_state(path, self.state_dict())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restore what ``save`` wrote, here or in ``RelativeReward``."""
        self.load_state_dict(read_state(path))

    def serve(
        self, address: tuple[str, int] = ("127.0.0.1", 0), *, key: bytes | None = None
    ) -> Service:
        """Answer other processes from a thread; see ``service.Service``."""
        from rpg_jax.adapters.service import Service

        return Service(self, address, key=key)


def _columns(
    reward: Column | float, seconds: Column | float
) -> tuple[list[float], list[float], int]:
    """Finite rows of both as floats, and how many are not finite."""
    if isinstance(reward, float | int) and isinstance(seconds, float | int):
        rows = [(float(reward), float(seconds))]
    else:
        first = np.atleast_1d(np.asarray(reward, np.float64))
        second = np.atleast_1d(np.asarray(seconds, np.float64))
        if first.ndim != 1 or first.shape != second.shape:
            raise ValueError(
                "reward and seconds must be of one length, got shapes "
                f"{first.shape} and {second.shape}"
            )
        rows = list(zip(first.tolist(), second.tolist(), strict=True))
    kept = [row for row in rows if math.isfinite(row[0]) and math.isfinite(row[1])]
    if any(row[1] < 0 for row in kept):
        raise ValueError("seconds must be >= 0")
    return [row[0] for row in kept], [row[1] for row in kept], len(rows) - len(kept)
