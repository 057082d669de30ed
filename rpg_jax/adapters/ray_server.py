"""``RewardRateServer`` as a named Ray actor: one price for all workers of a job."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpg_jax.adapters.server import RewardRateServer
from rpg_jax.adapters.state import from_plain, to_plain


class _Actor(RewardRateServer):
    """The server, with a rate that is a method: an actor has no properties."""

    def present(self) -> float:
        return self.rate

    def plain(self) -> dict[str, Any]:
        return to_plain(self.state_dict())

    def restore(self, plain: dict[str, Any]) -> None:
        self.load_state_dict(from_plain(plain))


class RayRates:
    """A client of the actor, with the methods of ``RewardRateServer``; it pickles.

    Args:
        name: of the actor. The first worker that names it starts it; it lives as long
            as that worker.
        namespace: Ray's; the job's own if None.
        options: of ``RewardRateServer``, for who starts it.
    """

    def __init__(
        self, name: str = "rpg_rate", *, namespace: str | None = None, **options: Any
    ) -> None:
        import ray

        self._ray = ray
        self._actor = (
            ray.remote(_Actor)
            .options(
                name=name,
                namespace=namespace,
                get_if_exists=True,
                num_cpus=0,
            )
            .remote(**options)
        )
        self._settings = (name, namespace, options)

    def __reduce__(self) -> Any:
        return _again, self._settings

    @property
    def rate(self) -> float:
        """What the next step is charged, in reward per second; 0 before any data."""
        return float(self._ray.get(self._actor.present.remote()))

    def counts(self) -> dict[str, int]:
        """Rows taken in, rows skipped, steps ended."""
        counts: dict[str, int] = self._ray.get(self._actor.counts.remote())
        return counts

    def charge(
        self, reward: Any, seconds: Any, *, step: int | None = None, update: bool = True
    ) -> float:
        """See ``RewardRateServer.charge``."""
        return float(
            self._ray.get(self.asked(reward, seconds, step=step, update=update))
        )

    def asked(
        self, reward: Any, seconds: Any, *, step: int | None = None, update: bool = True
    ) -> Any:
        """``charge`` as a reference that asyncio may await."""
        return self._actor.charge.remote(
            np.asarray(reward, np.float64).tolist(),
            np.asarray(seconds, np.float64).tolist(),
            step=step,
            update=update,
        )

    def state_dict(self) -> dict[str, Any]:
        """See ``RewardRateServer.state_dict``."""
        return from_plain(self._ray.get(self._actor.plain.remote()))

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """See ``RewardRateServer.load_state_dict``."""
        self._ray.get(self._actor.restore.remote(to_plain(saved)))


def _again(name: str, namespace: str | None, options: dict[str, Any]) -> RayRates:
    return RayRates(name, namespace=namespace, **options)
