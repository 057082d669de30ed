"""What must not be averaged or compared, and is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.reporting.runs import ReportError, RunRecords

#: What runs of one report may differ in: what they are compared by, and what changes
#: no number.
_FREE = {
    "arm", "arms", "task", "tasks", "sources", "seed", "seeds", "baseline", "limit_s",
    "leaderboard", "checkpoint_every", "replay_of",
}  # fmt: skip


def _first_difference(a: Any, b: Any, path: str) -> str | None:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            found = _first_difference(a.get(key), b.get(key), f"{path}.{key}")
            if found:
                return found
        return None
    if a == b:
        return None
    short = [
        text if len(text) < 60 else f"{text[:57]}..." for text in map(repr, (a, b))
    ]
    return f"{path.lstrip('.')} is {short[0]} and {short[1]}"


def _shared(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that all runs of a report have in common."""
    return {key: value for key, value in config.items() if key not in _FREE}


def _other_sources(a: dict[str, Any], b: dict[str, Any]) -> str | None:
    """A task whose data come from elsewhere in another run."""

    def sources(config: dict[str, Any]) -> dict[str, Any]:
        pairs = zip(config.get("tasks", ()), config.get("sources", ()), strict=False)
        return {str(task): source for task, source in pairs}

    one, other = sources(a), sources(b)
    shared = {task: one[task] for task in one if task in other}
    return _first_difference(shared, {task: other[task] for task in shared}, "sources")


def _refuse(a: Path, b: Path, difference: str | None) -> None:
    if difference:
        raise ReportError(
            f"{a} and {b} have different configurations ({difference}): make a report "
            "of each"
        )


def check_alike(
    runs: Sequence[RunRecords], named: Sequence[tuple[Path, dict[str, Any]]]
) -> None:
    """Refuse runs that must not be averaged or compared.

    Args:
        runs: of all experiments.
        named: (folder, ``config`` of its config.json) of each experiment.

    Raises:
        ReportError: names the key that differs, or the seed that is there twice.
    """
    for folder, config in named[1:]:
        first, known = named[0]
        _refuse(first, folder, _first_difference(_shared(known), _shared(config), ""))
        _refuse(first, folder, _other_sources(known, config))
    seen: dict[tuple[str, str, int], RunRecords] = {}
    tasks: dict[str, RunRecords] = {}
    arms: dict[str, RunRecords] = {}
    for run in runs:
        key = (run.task.short, run.arm, run.seed)
        if key in seen:
            raise ReportError(
                f"{seen[key].folder} and {run.folder} both hold {run.name}: it would "
                "count twice; leave one out"
            )
        seen[key] = run
        one = runs[0]
        difference = _first_difference(_shared(one.config), _shared(run.config), "")
        _refuse(one.folder, run.folder, difference)
        one = tasks.setdefault(run.task.short, run)
        for name in ("baseline", "limit_s", "leaderboard"):
            difference = _first_difference(
                one.config.get(name), run.config.get(name), name
            )
            _refuse(one.folder, run.folder, difference)
        one = arms.setdefault(run.arm, run)
        difference = _first_difference(one.config.get("arm"), run.config.get("arm"),
                                       "arm")  # fmt: skip
        _refuse(one.folder, run.folder, difference)
