"""Several runs side by side under equal budgets, in turns."""

from collections.abc import Callable, Sequence
from typing import Any

from experiments.config.budget import Budget
from experiments.config.errors import Diverged
from experiments.loop.algorithm import Loop


def run(
    loops: Sequence[Loop],
    budget: Budget,
    on_step: Callable[[Loop, dict[str, Any]], None] | None = None,
    on_begin: Callable[[Loop], None] | None = None,
) -> list[Diverged]:
    """Run all loops to the end of the budget, one step at a time.

    The next step belongs to the run with the smallest share used (the first of them on
    ties), so that a machine that slows down slows all of them.

    Args:
        loops: runs of an experiment.
        budget: the same for each.
        on_step: called after each step with its loop and its metrics.
        on_begin: called with a loop before its policy is needed: before each step, and
            before a last checkpoint.

    Returns:
        Why runs were over before their budget was; the others went on.

    Raises:
        LoopError, Stopped: from a step; the policies' states of the other runs are kept
            as far as their checkpoints go.
    """
    diverged: dict[int, Diverged] = {}
    while True:
        open_ = [
            (budget.share(loop.used()), at)
            for at, loop in enumerate(loops)
            if not (loop.exhausted or at in diverged) and budget.share(loop.used()) < 1
        ]
        if not open_:
            break
        at = min(open_)[1]
        loop = loops[at]
        if on_begin is not None:
            on_begin(loop)
        try:
            metrics = loop.step()
        except Diverged as error:
            diverged[at] = error
            continue
        if on_step is not None:
            on_step(loop, metrics)
    for at, loop in enumerate(loops):
        if at not in diverged and loop.next_step % loop.spec.checkpoint_every:
            if on_begin is not None:
                on_begin(loop)
            loop.checkpoint()
    return list(diverged.values())
