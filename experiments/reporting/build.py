"""The whole report from the folders of runs: page, figures, tables."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.reporting import budget as budgets
from experiments.reporting import (
    contests,
    curves,
    figures,
    headline,
    html,
    learning,
    medals,
    numbers,
    sheets,
    style,
)
from experiments.reporting.budget import Budget
from experiments.reporting.load import Experiment, ReportError, load
from experiments.reporting.sheet import Sheet, write_csv
from rpg_tasks.registry import Task

PAGE = "report.html"


@dataclasses.dataclass(frozen=True)
class Report:
    """What was built.

    Attributes:
        page: path of the HTML file.
        experiment: what it reports.
        headline: its first sentence.
        contests: one sentence a task.
        sheets: its tables.
        files: everything written.
    """

    page: Path
    experiment: Experiment
    headline: str
    contests: list[str]
    sheets: list[Sheet]
    files: list[Path]


def build_report(
    folders: Sequence[Path | str] | Path | str,
    out: Path | str | None = None,
    *,
    curve: str = "best",
    leave_out_damaged: bool = False,
) -> Path:
    """Build the report of one or several runs; path of its page.

    Args:
        folders: RUN folders, or folders of single cells.
        out: folder of the report; None: ``report`` in the first of them. A name that
            ends in .html is the page itself, with a folder of that name beside it.
        curve: ``best``, ``last`` or ``mean`` score in the budget curves.
        leave_out_damaged: report the other runs where a file of records is damaged.

    Raises:
        ReportError: the folders give no report; one line says why.
        LedgerError: a file of records is damaged.
    """
    return build(folders, out, curve=curve, leave_out_damaged=leave_out_damaged).page


def build(
    folders: Sequence[Path | str] | Path | str,
    out: Path | str | None = None,
    *,
    curve: str = "best",
    leave_out_damaged: bool = False,
    progress: Callable[[str], None] = lambda what: None,
) -> Report:
    """``build_report`` with everything it made; ``progress`` is told what comes."""
    if isinstance(folders, (str, Path)):
        folders = [folders]
    progress("reading the records")
    experiment = load(folders, leave_out_damaged=leave_out_damaged)
    target = Path(out) if out is not None else experiment.roots[0] / "report"
    page = target / PAGE
    if target.suffix == ".html":
        page, target = target, target.with_suffix("")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(
            f"cannot write to {target} ({error.strerror}): choose another --out"
        ) from None
    return _Maker(experiment, page, target, curve, progress).make()


class _Maker:
    def __init__(
        self,
        experiment: Experiment,
        page: Path,
        out: Path,
        curve: str,
        progress: Callable[[str], None],
    ):
        self.experiment, self.page, self.out = experiment, page, out
        self.curve = curve
        self.progress = progress
        self.files: list[Path] = []
        self.synthetic = bool(headline.synthetic_tasks(experiment))
        self.budgets = {
            clock: figures.tasks_with(
                [
                    budgets.read_budget(experiment, task, clock, curve)
                    for task in experiment.tasks
                ]
            )
            for clock in curves.CLOCKS
        }
        self.checks = [
            check for task in experiment.tasks
            for check in learning.checks(experiment, task)
        ]  # fmt: skip

    def make(self) -> Report:
        self.progress("tables")
        groups = self._sheets()
        self.progress("figures")
        found = contests.contests(self.experiment)
        duel = [contests.contest_sheet(found)] if found else []
        few = len(found) <= contests.SENTENCES
        with style.styled():
            drawn = self._figures()
        self.progress("scripts and page")
        sections = [
            html.Section(
                "rates", "Reward per second", figures=tuple(drawn["rates"]),
                sheets=(*(() if few else duel), groups["arms"]),
            ),
            html.Section(
                "budget", "Score against time", figures=tuple(drawn["budget"]),
                sheets=tuple(groups["scores"]),
            ),
            html.Section(
                "learning", "Is the policy learning?",
                figures=tuple(drawn["steps"]), sheets=(groups["learning"],),
            ),
            html.Section(
                "test", "Private test and failures",
                intro="" if groups["test"] else "No private test was scored.",
                sheets=(*groups["test"], groups["failures"]),
            ),
        ]  # fmt: skip
        lines = {
            "headline": headline.headline(self.experiment, found),
            "contests": [one.sentence() for one in found],
            "few": few,
            "interval_note": numbers.interval_note(
                [(one.kind, one.count) for one in found or self.checks]
            ),
        }
        self._write(self.page, html.render(self.experiment, sections, lines))
        every = [*duel, groups["arms"], *groups["scores"], groups["learning"]]
        every += [*groups["test"], groups["failures"]]
        self._write_tables(every, lines)
        return Report(
            self.page, self.experiment, lines["headline"], lines["contests"], every,
            self.files,
        )  # fmt: skip

    def _sheets(self) -> dict[str, Any]:
        experiment, arms, paper = (
            self.experiment, self.experiment.arms(), not self.synthetic
        )  # fmt: skip
        scores = [
            sheets.score_sheet(found, arms, paper=paper)
            for found in self.budgets.values()
            if found
        ]
        if self.budgets["total"]:
            scores.append(sheets.end_sheet(self.budgets["total"], arms, paper=paper))
        test = []
        if medals.any_scored(experiment):
            test = [
                sheets.test_sheet(experiment, paper=paper),
                sheets.medal_sheet(experiment, synthetic=self.synthetic),
            ]
        return {
            "scores": scores,
            "arms": sheets.arm_sheet(experiment),
            "learning": sheets.learning_sheet(self.checks),
            "test": test,
            "failures": sheets.status_sheet(experiment),
        }

    def _figures(self) -> dict[str, list[html.Figure]]:
        experiment = self.experiment
        drawn: dict[str, list[html.Figure]] = {"budget": [], "steps": []}
        drawn["rates"] = [
            self._figure(
                "rates",
                [figures.rates_panel(experiment)],
                "Reward per second on the protocol's clock, with 95% bootstrap "
                "intervals.",
                size=figures.rates_size(experiment),
            )
        ]
        by_task: dict[str, list[Budget]] = {}
        for found in self.budgets.values():
            for one in found:
                by_task.setdefault(one.task.short, []).append(one)
        for name, pair in by_task.items():
            foot = figures.failures_line(self.curve)
            drawn["budget"].append(
                self._figure(
                    f"budget-{name}",
                    [figures.budget_panel(one) for one in pair],
                    f"{name}: {figures.CURVE_TEXT[self.curve]}, mean over chains; "
                    "band: standard error (between seeds; between chains with one "
                    f"seed). Dotted: the sample submission. {foot}",
                    foot=foot,
                )
            )
        for task in experiment.tasks:
            if figures.has_steps(experiment, task):
                drawn["steps"].append(self._steps(task))
        return drawn

    def _steps(self, task: Task) -> html.Figure:
        price = next(c.price for c in self.checks if c.task.short == task.short)
        panels = [
            figures.step_panel(self.experiment, task, column, price)
            for column in figures.STEP_PANELS
        ]
        panels.append(figures.rho_panel(self.experiment, task))
        return self._figure(
            f"steps-{task.short}",
            panels,
            f"{task.short}: means over a step's attempts; band: standard error between "
            f"seeds. Price of a second: {price.value:.4g} ({price.source}).",
        )

    def _figure(
        self, key: str, panels: list[style.Panel], caption: str, *, foot: str = "",
        size: tuple[float, float] = (5.2, 3.9),
    ) -> html.Figure:  # fmt: skip
        whole = style.draw(panels, foot=foot, size=size)
        self.files += style.save(whole, self.out / key)
        return html.Figure(key, tuple(style.svgs(whole, key, caption)), caption)

    def _write(self, path: Path, text: str) -> None:
        # Whole or not at all: a page may be open in a browser.
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
        self.files.append(path)

    def _write_tables(self, every: list[Sheet], lines: dict[str, Any]) -> None:
        for sheet in every:
            self.files.append(sheet.write_csv(self.out / f"{sheet.name}.csv"))
        parts = [lines["headline"], *headline.cautions(self.experiment)]
        if unfinished := self.experiment.unfinished:
            parts.append("\n".join(f"- {line}" for line in unfinished))
        parts += [sheet.markdown() for sheet in every]
        self._write(self.out / "tables.md", "\n\n".join(parts))
        points = [
            row for found in self.budgets.values() for b in found
            for row in budgets.rows(b)
        ]  # fmt: skip
        write_csv(self.out / "curves.csv", budgets.CURVE_FIELDS, points)
        self.files.append(self.out / "curves.csv")
        self._write_attempts()

    def _write_attempts(self) -> None:
        names = (
            "run_id", "task", "arm", "seed", "step", "chain", "parent", "status",
            "reason", "score", "reward", "value", "delta_s", "execution_s",
            "generation_s", "script",
        )  # fmt: skip

        def rows():
            for cell in self.experiment.cells:
                at = cell.attempts
                for i in range(len(at)):
                    row = {n: _plain(getattr(at, n)[i]) for n in names
                           if hasattr(at, n)}  # fmt: skip
                    row |= {"task": cell.task.short, "arm": cell.arm}
                    yield row | {"seed": cell.seed}

        write_csv(self.out / "attempts.csv", names, rows())
        self.files.append(self.out / "attempts.csv")


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
