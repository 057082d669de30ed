"""What must not be averaged or compared, and is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.reporting.load import Cell

#: What cells of one report may differ in: what they are compared by, and what changes
#: no number.
_FREE = {
    "arm", "arms", "task", "tasks", "sources", "seed", "seeds", "baseline", "limit_s",
    "leaderboard", "checkpoint_every", "replay_of",
}  # fmt: skip


class ReportError(ValueError):
    """The folders give no report; the message says why."""


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


def _without(config: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in names}


def _other_sources(a: dict[str, Any], b: dict[str, Any]) -> str | None:
    """A task whose data come from elsewhere in another run."""

    def sources(config: dict[str, Any]) -> dict[str, Any]:
        pairs = zip(config.get("tasks", ()), config.get("sources", ()), strict=False)
        return {str(task): source for task, source in pairs}

    one, other = sources(a), sources(b)
    shared = {task: one[task] for task in one if task in other}
    return _first_difference(shared, {task: other[task] for task in shared}, "sources")


def check_alike(
    cells: Sequence[Cell], named: Sequence[tuple[Path, dict[str, Any]]]
) -> None:
    """Refuse cells that must not be averaged or compared.

    Args:
        cells: of all runs.
        named: (folder, ``config`` of its config.json) of each experiment.

    Raises:
        ReportError: names the key that differs, or the seed that is there twice.
    """

    def refuse(a: Path, b: Path, difference: str | None) -> None:
        if difference:
            raise ReportError(
                f"{a} and {b} are different configurations ({difference}): report "
                "them apart"
            )

    for other in named[1:]:
        difference = _first_difference(
            _without(named[0][1], _FREE), _without(other[1], _FREE), ""
        )
        refuse(named[0][0], other[0], difference)
        refuse(named[0][0], other[0], _other_sources(named[0][1], other[1]))
    seen: dict[tuple, Cell] = {}
    first: dict[str, Cell] = {}
    arms: dict[str, Cell] = {}
    for cell in cells:
        key = (cell.task.short, cell.arm, cell.seed)
        if key in seen:
            raise ReportError(
                f"{seen[key].folder} and {cell.folder} both hold {cell.name}: it would "
                "count twice; leave one out"
            )
        seen[key] = cell
        one = first.setdefault("", cell)
        difference = _first_difference(
            _without(one.config, _FREE), _without(cell.config, _FREE), ""
        )
        refuse(one.folder, cell.folder, difference)
        one = first.setdefault(cell.task.short, cell)
        for name in ("baseline", "limit_s", "leaderboard"):
            difference = _first_difference(
                one.config.get(name), cell.config.get(name), name
            )
            refuse(one.folder, cell.folder, difference)
        one = arms.setdefault(cell.arm, cell)
        difference = _first_difference(
            one.config.get("arm"), cell.config.get("arm"), "arm"
        )
        refuse(one.folder, cell.folder, difference)
