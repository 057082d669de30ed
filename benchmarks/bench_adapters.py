"""What a price costs per call: in one process, over a local service, over Ray.

    python -m benchmarks.bench_adapters          # Ray's line needs the extra `ray`

Median and 99th percentile of the time of a call, one row each, or a batch of 256.
"""

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rpg_jax.adapters import RelativeReward, RewardRateServer

CALLS = 5_000


def timed(name: str, call: Callable[[], Any], *, calls: int = CALLS) -> None:
    """Print a line."""
    for _ in range(100):
        call()
    took = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    middle, high = np.percentile(took, [50, 99]) * 1e6
    print(f"{name:44s} {middle:8.1f} us  {high:8.1f} us")


def main() -> None:
    rng = np.random.default_rng(0)
    one, many = rng.uniform(1, 2, (2, 1)), rng.uniform(1, 2, (2, 256))
    print(f"{'a call of':44s} {'median':>11s}  {'99%':>11s}")
    relative, server = RelativeReward(), RewardRateServer(rows_per_step=256)
    timed("RelativeReward, 1 row", lambda: relative(*one))
    timed("RelativeReward, 256 rows", lambda: relative(*many))
    timed("RewardRateServer, 1 row", lambda: server.charge(1.0, 2.0))
    timed("RewardRateServer, 256 rows", lambda: server.charge(*many))
    with server.serve() as service:
        client = service.client()
        timed("its client in another process, 1 row", lambda: client.charge(1.0, 2.0))
    if importlib.util.find_spec("ray") is None:
        return
    import ray

    from rpg_jax.adapters.ray_server import RayRates

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    rates = RayRates(rows_per_step=256)
    timed("RayRates, 1 row", lambda: rates.charge(1.0, 2.0), calls=1_000)
    ray.shutdown()


if __name__ == "__main__":
    main()
