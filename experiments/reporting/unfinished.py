"""What is missing: runs without a step, failed tasks, budgets not used up."""

import json
from pathlib import Path
from typing import Any

from experiments.config.budget import Budget
from experiments.reporting.runs import RunRecords

STATE = "task.json"


def progress(budget: Any, used: dict[str, float]) -> float | None:
    """Share of the budget that is used, as the loop counts it."""
    if not isinstance(budget, dict):
        return None
    seconds, steps = budget.get("seconds") or None, budget.get("steps") or None
    if seconds is None and steps is None:
        return None
    limit = Budget(seconds, steps, budget.get("clock", "total"))
    return limit.share({limit.clock: 0.0, "steps": 0.0} | used)


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


def stopped(run: RunRecords) -> str | None:
    """How far a run got, if that is not to its end."""
    status = _state(run.folder.resolve().parent.parent).get("status")
    if status in ("done", "replayed"):
        return None
    early = "its private test is of an earlier best script" if _outdated(run) else ""
    if run.progress is not None and run.progress < 1:
        share = f"{100 * run.progress:.0f}% of its budget"
        line = f"{run.name}: {run.steps} steps, {share}"
        return f"{line}; {early}" if early else line
    if left := run.attempts.left_out:
        return (
            f"{run.name}: stopped within step {run.steps}; its {left} attempts are "
            "left out"
        )
    if status is not None and not run.final:
        return f"{run.name}: no score on the private test yet"
    return f"{run.name}: {early}" if early else None


def _outdated(run: RunRecords) -> bool:
    """Whether the run went on and found a better script than the one tested."""
    tested = [r.get("validation_score") for r in run.final if r.get("best")]
    return bool(tested) and tested[-1] != run.metrics["best_score"][-1]
