"""All figures of a report: files on disk, and inline SVGs for the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.reporting import best_figure, style, wording
from experiments.reporting import figures as panels
from experiments.reporting.best import BestScores
from experiments.reporting.budget import BudgetUse
from experiments.reporting.html import Figure
from experiments.reporting.learning import Check
from experiments.reporting.runs import Experiment
from rpg_tasks.goal import Goal

_RATES = "Reward per second on the protocol's clock, with 95% bootstrap intervals."


class _Folder:
    """Where figures go; remembers what it wrote."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.written: list[Path] = []

    def draw(
        self,
        key: str,
        shown: Sequence[style.Panel],
        caption: str,
        *,
        foot: str = "",
        size: tuple[float, float] = style.SIZE,
    ) -> Figure:
        """Draw panels, save them, and give the page its copy."""
        whole = style.draw(shown, foot=foot, size=size)
        self.written += style.save(whole, self.folder / key)
        return Figure(key, tuple(style.svgs(whole, key, caption)), caption)


def figures(
    experiment: Experiment,
    bests: Sequence[BestScores],
    used: dict[str, list[BudgetUse]],
    checks: Sequence[Check],
    folder: Path,
) -> tuple[dict[str, list[Figure]], list[Path]]:
    """Draw everything.

    Args:
        experiment: what is reported.
        bests: best scores of each task.
        used: clock -> curves of each task.
        checks: give the prices.
        folder: of the files.

    Returns:
        Figures by section (``best``, ``rates``, ``budget``, ``steps``), and the files.
    """
    where = _Folder(folder)
    with style.styled():
        first = [_best(where, bests)] if bests else []
        rates = where.draw(
            "rates",
            [panels.rates_panel(experiment)],
            _RATES,
            size=panels.rates_size(experiment),
        )
        by_task: dict[str, list[BudgetUse]] = {}
        for found in used.values():
            for one in found:
                by_task.setdefault(one.task.short, []).append(one)
        budgets = [_budget(where, clocks) for clocks in by_task.values()]
        steps = [
            _steps(where, experiment, task, checks)
            for task in experiment.tasks
            if panels.has_steps(experiment, task)
        ]
    return {
        "best": first,
        "rates": [rates],
        "budget": budgets,
        "steps": steps,
    }, where.written


def _best(where: _Folder, bests: Sequence[BestScores]) -> Figure:
    kinds = " and ".join(sorted({one.kind for one in bests}))
    return where.draw(
        "best",
        [best_figure.best_panel(one) for one in bests],
        f"Best validation {wording.score(bests[0].task)} so far against a run's wall "
        "time (without compilation), "
        f"mean over runs; band: 95% interval over {kinds}. Dotted: a run of the arm "
        "has ended and keeps its last score. Thin dotted line: "
        f"{wording.start(bests[0].task)}.",
        size=best_figure.SIZE,
    )


def _budget(where: _Folder, clocks: Sequence[BudgetUse]) -> Figure:
    name, curve = clocks[0].task.short, clocks[0].curve
    foot = panels.small_print(clocks[0].task, curve)
    return where.draw(
        f"budget-{name}",
        [panels.budget_panel(one) for one in clocks],
        f"{name}: {panels.curve_text(clocks[0].task, curve)}, mean over chains; band: "
        f"standard error (between seeds; between chains with one seed). {foot}",
        foot=foot,
    )


def _steps(
    where: _Folder, experiment: Experiment, task: Goal, checks: Sequence[Check]
) -> Figure:
    price = next(c.price for c in checks if c.task.short == task.short)
    shown = [
        panels.step_panel(experiment, task, column, price)
        for column in panels.STEP_PANELS
    ]
    return where.draw(
        f"steps-{task.short}",
        [*shown, panels.rho_panel(experiment, task)],
        f"{task.short}: means over the attempts of a step; band: standard error "
        f"between seeds. Price of a second: {price.value:.4g} ({price.source}).",
    )
