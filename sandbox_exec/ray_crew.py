"""The pools on a cluster's machines: where they belong, how they start and end."""

import contextlib
import itertools
from dataclasses import dataclass, field
from typing import Any

from .errors import SandboxError
from .limits import Level
from .ray_host import Host, Machines, place
from .runner import Engine


@dataclass(eq=False)
class Worker:
    """One actor with its pool, and what runs on it."""

    node_id: str
    actor: Any
    serial: int = 0
    capacity: int = 0
    level: Level = Level.POSIX
    running: dict[Any, Any] = field(default_factory=dict)


class Crew:
    """Starts pools.

    Args:
        ray: the module, initialised.
        slots: of each machine; None: one per core but one.
        actors_per_node: pools on each machine; they share its cores out evenly.
        start_timeout_s: seconds to wait for a machine's pool.
        options: of each LocalPool.
    """

    def __init__(
        self,
        ray: Any,
        *,
        slots: int | None,
        actors_per_node: int,
        start_timeout_s: float,
        options: dict[str, Any],
    ) -> None:
        self._ray = ray
        self._slots = slots
        self._actors_per_node = actors_per_node
        self._start_timeout_s = start_timeout_s
        self._options = options
        self._machines = Machines(start_timeout_s)
        # A pool in the place of a lost one need not try the levels and measure the
        # cores again: that takes seconds, on cores where others' scripts run.
        self._engines: dict[str, Engine] = {}

    def places(self) -> list[tuple[str, int]]:
        """Where a pool belongs: (machine, number of the pool on it)."""
        nodes = [n["NodeID"] for n in self._ray.nodes() if n.get("Alive")]
        return list(itertools.product(nodes, range(self._actors_per_node)))

    def start_all(self) -> list[Worker]:
        """Pools at all places where they start; side by side, as that takes seconds.

        Raises:
            SandboxError: none did.
        """
        starting, started, problems = [], [], []
        for node, serial in self.places():
            try:
                starting.append(self.begin(node, serial))
            except SandboxError as error:
                problems.append(str(error))
        for worker in starting:
            try:
                self.wait(worker)
                started.append(worker)
            except SandboxError as error:
                problems.append(str(error))
        if not started:
            raise SandboxError("; ".join(problems) or "the Ray cluster has no machine")
        return started

    def begin(self, node_id: str, serial: int) -> Worker:
        """Begin to start the pool of one place.

        Raises:
            SandboxError: the machine does not answer.
        """
        options = dict(self._options)
        if node_id in self._engines:
            options["engine"] = self._engines[node_id]
        slots = self._slots
        if "cores" not in options and self._actors_per_node > 1:
            cores = self._machines.cores_of(node_id)
            share = max(1, len(cores) // self._actors_per_node)
            first = serial * share % len(cores)
            options["cores"] = cores[first : first + share]
            slots = min(slots or share, share)
        if slots is None:
            slots = max(1, len(self._machines.cores_of(node_id)) - 1)
        actor = (
            self._ray.remote(Host)
            .options(
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=slots + 4,
                **place(node_id),
            )
            .remote(slots, options)
        )
        return Worker(node_id=node_id, actor=actor, serial=serial)

    def wait(self, worker: Worker) -> None:
        """Until its pool is there.

        Raises:
            SandboxError: it could not start; the actor is gone.
        """
        try:
            answer = self._ray.get(
                worker.actor.describe.remote(), timeout=self._start_timeout_s
            )
        except Exception as error:
            self.dismiss(worker)
            self._engines.pop(worker.node_id, None)
            cause = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise SandboxError(
                f"machine {worker.node_id[:8]} could not start its pool: {cause[0]}"
            ) from error
        worker.capacity = answer["capacity"]
        worker.level = Level(answer["isolation"])
        self._engines[worker.node_id] = answer["engine"]

    def dismiss(self, worker: Worker) -> None:
        """Kill an actor, and with it whatever runs on it."""
        with contextlib.suppress(Exception):
            self._ray.kill(worker.actor)
