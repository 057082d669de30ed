"""Several processes: joining them, and rewards that no collective waits for.

Scripts take seconds to minutes and may hang. Process 0 runs them and hands their
rewards to the others through the coordination service's key-value store, under a hard
deadline: the devices of the other processes are idle meanwhile, not inside a
collective, and a hanging script costs its own row and nothing else.
"""

from __future__ import annotations

import io
import itertools
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from orbax.checkpoint import multihost

_calls = itertools.count()


class RewardError(RuntimeError):
    """No rewards came: the message says from where and why."""


class Rewards(NamedTuple):
    """What each row of a batch earned.

    Attributes:
        reward: float32; 0 where not valid.
        duration: float32, seconds; 0 where not valid.
        valid: False where no result came before the deadline.
    """

    reward: Float[np.ndarray, " B"]
    duration: Float[np.ndarray, " B"]
    valid: Bool[np.ndarray, " B"]


class RewardBoard:
    """Filled in by whoever runs the scripts, in any order and from any thread.

    Args:
        rows: number of rows B.
    """

    def __init__(self, rows: int):
        self._lock = threading.Lock()
        self._closed = False
        self._rewards = Rewards(
            np.zeros(rows, np.float32), np.zeros(rows, np.float32), np.zeros(rows, bool)
        )

    def put(self, row: int, reward: float, duration: float) -> bool:
        """Record one result; False if the deadline has passed and it came too late.

        Args:
            row: index in the batch.
            reward: any unit.
            duration: seconds.

        Raises:
            ValueError: no such row, or a number that is not finite.
        """
        rows = len(self._rewards.valid)
        if not 0 <= row < rows:  # NumPy would take -1 for the last one
            raise ValueError(f"Row {row} lies outside [0, {rows}).")
        if not (np.isfinite(reward) and np.isfinite(duration)):
            raise ValueError(f"Row {row}: reward {reward}, duration {duration} s.")
        with self._lock:
            if self._closed:
                return False
            self._rewards.reward[row] = reward
            self._rewards.duration[row] = duration
            self._rewards.valid[row] = True
            return True

    def close(self) -> Rewards:
        """What has come so far; later results are refused."""
        with self._lock:
            self._closed = True
            return Rewards(*(x.copy() for x in self._rewards))


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout_s: float = 120.0,
) -> None:
    """Join the processes of one run; call it before anything else touches JAX.

    Args:
        coordinator: `host:port` of process 0; None lets JAX read the cluster's
            environment (SLURM, Kubernetes, Cloud TPU).
        num_processes: how many there are; 1 does nothing.
        process_id: which one this is.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        RuntimeError: the coordinator cannot be reached, or JAX is already in use.
    """
    if num_processes == 1 or jax.distributed.is_initialized():
        return
    if coordinator is not None and process_id:
        _wait_for(coordinator, timeout_s)
    try:
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=num_processes,
            process_id=process_id,
            initialization_timeout=int(timeout_s),
        )
    except (RuntimeError, ValueError) as error:
        raise RuntimeError(
            f"Process {process_id} of {num_processes} could not join {coordinator}: "
            f"{error}. Start all processes within {timeout_s:.0f} s of each other, "
            "with the same coordinator address and before JAX is used."
        ) from error


def _wait_for(address: str, timeout_s: float) -> None:
    """Until something listens there; JAX itself would abort without a traceback."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RuntimeError(f"Coordinator {address!r} must read host:port.")
    begun = time.monotonic()
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 1.0).close()
            return
        except OSError as error:
            if time.monotonic() - begun > timeout_s:
                raise RuntimeError(
                    f"No process 0 listens at {address} after {timeout_s:.0f} s "
                    f"({error}). Start all processes within that time of each other, "
                    "and check the address and the firewall."
                ) from error
            time.sleep(0.2)


def share_rewards(
    collect: Callable[[RewardBoard], None],
    rows: int,
    *,
    deadline_s: float,
    grace_s: float = 60.0,
) -> Rewards:
    """Run `collect` on process 0 and give its results to every process.

    Args:
        collect: fills in the board; called in a thread, on process 0 only. It may
            return early, late or never: the deadline ends the wait.
        rows: rows of the batch.
        deadline_s: seconds after which rows without a result are not valid.
        grace_s: how much longer the other processes wait for process 0, seconds.

    Returns:
        `Rewards`, the same on every process.

    Raises:
        RewardError: on every process, if `collect` raised; on the others, if process 0
            sent nothing in time.
    """
    key = f"rpg_jax/rewards/{next(_calls)}"  # the same on all: calls are in step
    if jax.process_index() == 0:
        rewards, failure = _collect(collect, rows, deadline_s)
        if jax.process_count() > 1:
            text = b"" if failure is None else repr(failure).encode()
            _client().key_value_set_bytes(key, _pack(rewards, text))
        if failure is not None:
            raise RewardError(f"Collecting rewards failed: {failure!r}.") from failure
        return rewards
    try:
        data = _client().blocking_key_value_get_bytes(
            key, int(1000 * (deadline_s + grace_s))
        )
    except jax.errors.JaxRuntimeError as error:
        raise RewardError(
            f"Process 0 sent no rewards within {deadline_s + grace_s:.0f} s: it has "
            "died or hangs. Restart the run; it resumes from its last checkpoint."
        ) from error
    rewards, text = _unpack(data)
    if text:
        raise RewardError(f"Collecting rewards failed on process 0: {text.decode()}.")
    return rewards


def _collect(
    collect: Callable[[RewardBoard], None], rows: int, deadline_s: float
) -> tuple[Rewards, BaseException | None]:
    board, failures = RewardBoard(rows), []

    def work() -> None:
        try:
            collect(board)
        except BaseException as error:  # handed on to every process
            failures.append(error)

    # A daemon: a hanging script must not keep the interpreter alive either.
    thread = threading.Thread(target=work, daemon=True, name="rewards")
    begun = time.monotonic()
    thread.start()
    thread.join(max(0.0, deadline_s - (time.monotonic() - begun)))
    return board.close(), failures[0] if failures else None


def _client() -> Any:
    client = multihost.get_jax_distributed_client()
    if client is None:
        raise RuntimeError("Call rpg_jax.llm.initialize before share_rewards.")
    return client


def _pack(rewards: Rewards, failure: bytes) -> bytes:
    buffer = io.BytesIO()
    text = np.frombuffer(failure, np.uint8)
    np.savez(buffer, failure=text, **rewards._asdict())
    return buffer.getvalue()


def _unpack(data: bytes) -> tuple[Rewards, bytes]:
    with np.load(io.BytesIO(data)) as fields:
        rewards = Rewards(*(fields[name] for name in Rewards._fields))
        return rewards, fields["failure"].tobytes()
