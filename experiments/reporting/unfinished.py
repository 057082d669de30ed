"""What a run still owes: cells without a step, failed tasks, unused budgets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.reporting.load import Cell

STATE = "task.json"


def progress(budget: Any, used: dict[str, float]) -> float | None:
    """Share of the budget that is used, as ``schedule.Budget`` counts it."""
    if not isinstance(budget, dict):
        return None
    shares = []
    if budget.get("seconds"):
        shares.append(used.get(budget.get("clock", "total"), 0.0) / budget["seconds"])
    if budget.get("steps"):
        shares.append(used.get("steps", 0) / budget["steps"])
    return max(shares, default=None)


def _names(values: Any) -> list[str]:
    if not isinstance(values, list):
        return []
    return [v["name"] if isinstance(v, dict) else str(v) for v in values]


def absent(header: dict[str, Any], known: set[str]) -> list[str]:
    """Cells that the experiment planned, without a finished step.

    Args:
        header: config.json of the experiment.
        known: TASK/ARM/seed-K of those that are reported, or known to be damaged.
    """
    config = header.get("config", {})
    seeds = config.get("seeds")
    if isinstance(seeds, int):
        seeds = list(range(seeds))
    planned = [
        f"{task}/{arm}/seed-{seed}"
        for task in _names(config.get("tasks"))
        for arm in _names(config.get("arms"))
        for seed in _names(seeds)
    ]
    return [f"{name}: no finished step yet" for name in planned if name not in known]


def _state(folder: Path) -> dict[str, Any]:
    """What became of a task, as the training command leaves it."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def failed(root: Path) -> list[str]:
    """Tasks that failed or were stopped, and why."""
    out = []
    for path in sorted(root.glob(f"*/{STATE}")):
        state = _state(path.parent)
        if state.get("status") in ("failed", "diverged", "stopped"):
            reason = " ".join(str(state.get("reason", "")).split())
            line = f"{path.parent.name}: {state['status']}"
            out.append(f"{line}: {reason}" if reason else line)
    return out


def stopped(cell: Cell) -> str | None:
    """How far a cell got, if that is not to its end."""
    status = _state(cell.folder.resolve().parent.parent).get("status")
    if status in ("done", "replayed"):
        return None
    early = "its private test is of an earlier best script" if _outdated(cell) else ""
    if cell.progress is not None and cell.progress < 1:
        share = f"{100 * cell.progress:.0f}% of its budget"
        line = f"{cell.name}: {cell.steps} steps, {share}"
        return f"{line}; {early}" if early else line
    if left := cell.attempts.left_out:
        return (
            f"{cell.name}: stopped within step {cell.steps}; its {left} attempts are "
            "left out"
        )
    if status is not None and not cell.final:
        return f"{cell.name}: no score on the private test yet"
    return f"{cell.name}: {early}" if early else None


def _outdated(cell: Cell) -> bool:
    """Whether the run went on and found a better script than the one tested."""
    tested = [r.get("validation_score") for r in cell.final if r.get("best")]
    return bool(tested) and tested[-1] != cell.metrics["best_score"][-1]
