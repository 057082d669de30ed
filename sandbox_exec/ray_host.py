"""One machine of a Ray cluster: the actor that runs there, its place, its cores."""

import os
from typing import Any

from .errors import SandboxError
from .pool import LocalPool
from .protocol import RunRecord, ScriptJob
from .slots import available_cores


def place(node_id: str) -> dict[str, Any]:
    """Ray's options for work on one machine that takes none of its CPUs."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    affinity = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return {"num_cpus": 0, "scheduling_strategy": affinity}  # slots are ours to count


class Machines:
    """What is known of the cluster's machines, which differ.

    Args:
        timeout_s: seconds to wait for an answer.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._cores: dict[str, tuple[int, ...]] = {}

    def cores_of(self, node_id: str) -> tuple[int, ...]:
        """The cores that a machine's processes may use.

        Raises:
            SandboxError: it does not answer.
        """
        import ray

        if node_id not in self._cores:
            ask = ray.remote(available_cores).options(max_retries=0, **place(node_id))
            try:
                found = ray.get(ask.remote(), timeout=self._timeout_s)
            except Exception as error:
                raise SandboxError(
                    f"machine {node_id[:8]} does not answer: {type(error).__name__}"
                ) from error
            self._cores[node_id] = tuple(found)
        return self._cores[node_id]


class Host:
    """The actor: a LocalPool on one machine."""

    def __init__(self, slots: int, options: dict[str, Any]) -> None:
        self._pool = LocalPool(slots, **options)

    def describe(self) -> dict[str, Any]:
        """Level and capacity of this machine."""
        return {
            "isolation": int(self._pool.isolation),
            "capacity": self._pool.capacity,
            "pid": os.getpid(),
            "engine": self._pool.engine,
        }

    def run(self, job: ScriptJob) -> RunRecord:
        """Run one script; blocks one of the actor's threads."""
        return self._pool.submit(job).result()

    def cancel(self, run_id: str) -> bool:
        """Stop one script."""
        return self._pool.cancel(run_id)

    def close(self) -> None:
        """Stop everything."""
        self._pool.close()
