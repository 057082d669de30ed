"""TensorBoard scalars of a run, by tensorboardX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.console.screen import Screen, nobody
from experiments.loop.algorithm import Loop

SCALARS = (
    "rho",
    "rho_next",
    "price",
    "on_policy_rate",
    "mean_reward",
    "mean_relative",
    "valid_share",
    "mean_delta_s",
    "best_score",
    "infrastructure",
)


def available() -> bool:
    """Whether tensorboardX is installed."""
    import importlib.util

    return importlib.util.find_spec("tensorboardX") is not None


class Tracker:
    """Writes the scalars of one run to its ``tb/``; the records stay the truth.

    Args:
        folder: of the run.
        next_step: what a killed run wrote beyond it is taken back.
    """

    def __init__(self, folder: Path, next_step: int):
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(
            str(folder / "tb"), purge_step=next_step, flush_secs=10
        )

    def step(self, metrics: dict[str, Any]) -> None:
        """Write a step's numbers."""
        values = {f"loop/{name}": metrics.get(name) for name in SCALARS}
        for group in ("seconds", "used", "learn"):
            values |= {f"{group}/{k}": v for k, v in metrics[group].items()}
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(
                    name, float(value), metrics["step"], metrics["finished_at"]
                )

    def close(self) -> None:
        """Flush what is left."""
        with contextlib.suppress(OSError):
            self._writer.close()


@contextlib.contextmanager
def tracked(screen: Screen) -> Iterator[None]:
    """Write what the screen is told of, as long as the block lasts."""
    if not available():
        yield
        return
    with contextlib.ExitStack() as stack:
        trackers: dict[Path, Tracker] = {}

        def begin(loops: Sequence[Loop]) -> None:
            for loop in loops:
                tracker = Tracker(loop.folder, loop.next_step)
                stack.callback(tracker.close)
                trackers[loop.folder] = tracker

        def step(loop: Loop, metrics: dict[str, Any]) -> None:
            trackers[loop.folder].step(metrics)

        screen.on_begin, screen.on_step = begin, step
        try:
            yield
        finally:
            screen.on_begin, screen.on_step = nobody, nobody
