"""``RewardRateServer`` for other processes: a thread that answers, and its client.

Messages are JSON over an authenticated connection of the standard library, so that
nobody without the key is heard, and what is heard is never run as code.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np

from rpg_jax.adapters.state import from_plain, read_state, to_plain, write_state


class Service:
    """Answers clients of a server, each in a thread of its own.

    Args:
        server: keeps the price.
        address: host and port; port 0 takes a free one. "127.0.0.1" hears this machine
            only, "0.0.0.0" others too.
        key: secret that clients must have; a random one if None.

    Example:
        with RewardRateServer(rows_per_step=256).serve() as service:
            reward = trl.price(reward_fn, server=service.client())
    """

    def __init__(
        self,
        server: Any,  # a RewardRateServer, whose module imports this one
        address: tuple[str, int] = ("127.0.0.1", 0),
        *,
        key: bytes | None = None,
    ) -> None:
        self.server = server
        self.key = secrets.token_bytes(32) if key is None else key
        self._listener = Listener(address, authkey=self.key, backlog=64)
        self.address: tuple[str, int] = self._listener.address
        self._closed = False
        self._start(self._accept)

    def client(self) -> RateClient:
        """A client, which pickles."""
        return RateClient(self.address, key=self.key)

    def close(self) -> None:
        """Hear no new clients."""
        self._closed = True
        self._listener.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        threading.Thread(target=target, args=args, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            # A wrong key, or a connection that was cut: the next one may be right.
            with contextlib.suppress(Exception):
                self._start(self._answer, self._listener.accept())

    def _answer(self, connection: Connection[Any, Any]) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            while not self._closed:
                name, arguments = json.loads(connection.recv_bytes())
                try:
                    answer = {"value": self._call(name, arguments)}
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                connection.send_bytes(json.dumps(answer).encode())

    def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        server = self.server
        calls: dict[str, Callable[..., Any]] = {
            "charge": server.charge,
            "rate": lambda: server.rate,
            "counts": server.counts,
            "state": lambda: to_plain(server.state_dict()),
            "restore": lambda state: server.load_state_dict(from_plain(state)),
        }
        return calls[name](**arguments)


class RateClient:
    """A ``RewardRateServer`` of another process, with the same methods.

    It pickles; every process and thread opens a connection of its own.

    Args:
        address: host and port of the ``Service``.
        key: its secret.
    """

    def __init__(self, address: tuple[str, int], *, key: bytes) -> None:
        self.address = (address[0], int(address[1]))
        self.key = key
        self._local = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address, "key": self.key}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["address"], key=state["key"])  # type: ignore[misc]

    def __deepcopy__(self, memo: dict[int, Any]) -> RateClient:
        return RateClient(self.address, key=self.key)

    @property
    def rate(self) -> float:
        """What the next step is charged, in reward per second; 0 before any data."""
        return float(self._ask("rate"))

    def counts(self) -> dict[str, int]:
        """Rows taken in, rows skipped, steps ended."""
        counts: dict[str, int] = self._ask("counts")
        return counts

    def charge(
        self, reward: Any, seconds: Any, *, step: int | None = None, update: bool = True
    ) -> float:
        """See ``RewardRateServer.charge``."""
        price = self._ask(
            "charge",
            reward=np.asarray(reward, np.float64).tolist(),
            seconds=np.asarray(seconds, np.float64).tolist(),
            step=None if step is None else int(step),
            update=bool(update),
        )
        return float(price)

    def state_dict(self) -> dict[str, Any]:
        """See ``RewardRateServer.state_dict``."""
        return from_plain(self._ask("state"))

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """See ``RewardRateServer.load_state_dict``."""
        self._ask("restore", state=to_plain(saved))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state as JSON on this machine."""
        write_state(path, self.state_dict())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restore what ``save`` wrote on this machine."""
        self.load_state_dict(read_state(path))

    def _ask(self, name: str, **arguments: Any) -> Any:
        """Send a call and return its value.

        Raises:
            ConnectionError: nobody answers at the address.
            ValueError: the server refused the call.
        """
        # A fork has its parent's connection, on which two would speak at once.
        if getattr(self._local, "pid", None) != os.getpid():
            try:
                self._local.connection = Client(self.address, authkey=self.key)
            except OSError as error:
                raise ConnectionError(
                    f"no reward-rate server at {self.address}: {error}"
                ) from error
            self._local.pid = os.getpid()
        connection = self._local.connection
        try:
            connection.send_bytes(json.dumps([name, arguments]).encode())
            answer = json.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            # Not sent again: rows that arrived would be counted twice.
            self._local.pid = None
            raise ConnectionError(
                f"the reward-rate server at {self.address} is gone: {error}"
            ) from error
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["value"]
