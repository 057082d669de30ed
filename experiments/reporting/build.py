"""The whole report from the folders of runs: page, figures, tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.reporting import (
    best,
    budget,
    contests,
    curves,
    draw,
    edits,
    facts,
    files,
    headline,
    html,
    intervals,
    learning,
    medals,
    run_sheets,
    score_sheets,
    speedrun_sheets,
    speedruns,
    spread,
    spread_words,
    times,
    verdict,
    wording,
)
from experiments.reporting.best import BestScores
from experiments.reporting.budget import BudgetUse
from experiments.reporting.contests import Contest
from experiments.reporting.edits import Edit
from experiments.reporting.html import Section
from experiments.reporting.learning import Check
from experiments.reporting.load import load
from experiments.reporting.runs import Experiment, ReportError
from experiments.reporting.sheet import Sheet
from experiments.reporting.speedruns import Result

PAGE = "report.html"


@dataclasses.dataclass(frozen=True)
class Report:
    """What was built.

    Attributes:
        page: path of the HTML file.
        experiment: what it reports.
        headline: its first sentence, on best scores.
        rates: the same on reward per second.
        spread: one on seconds that buy no score.
        verdicts: one sentence a task on best scores.
        contests: one sentence a task on reward per second.
        best: the best scores of each task.
        edits: task -> the edits that improved its best score most.
        sheets: its tables.
        files: everything written.
    """

    page: Path
    experiment: Experiment
    headline: str
    rates: str
    spread: str
    verdicts: list[str]
    contests: list[str]
    best: list[BestScores]
    edits: dict[str, list[Edit]]
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
        folders: of experiments, or of single runs.
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
    page, target = _places(experiment, out)
    progress("tables")
    used = _budgets(experiment, curve)
    found = contests.contests(experiment)
    wide = spread.reported(experiment)
    checks = [c for task in experiment.tasks for c in learning.checks(experiment, task)]
    bests = _bests(experiment)
    judged = verdict.verdicts(experiment, bests)
    races = speedruns.results(experiment)
    tables = _first_sheets(experiment, bests, judged, races)
    tables |= _sheets(experiment, used, found, checks)
    progress("figures")
    figures, written = draw.figures(experiment, bests, used, checks, target)
    progress("scripts and page")
    units = [(one.kind, one.count) for one in found or checks]
    lines = html.Lines(
        _headline(judged, bests, races),
        headline.headline(experiment, found),
        [one.sentence() for one in judged],
        [one.sentence() for one in found],
        intervals.interval_note(units),
        few=len(found) <= contests.SENTENCES,
        edits={t.short: edits.best_edits(experiment, t) for t in experiment.tasks},
        spread=spread_words.line(wide),
    )
    sections = _sections(experiment, tables, figures, few=lines.few)
    written.append(files.write(page, html.render(experiment, sections, lines)))
    sheets = [sheet for group in tables.values() for sheet in group]
    said = f"{lines.headline}\n\n{lines.rates}"
    written += files.write_tables(target, experiment, said, sheets)
    written.append(files.write_curves(target, used.values()))
    written.append(spread_words.sheet(wide).write_csv(target / "spread.csv"))
    return Report(
        page,
        experiment,
        lines.headline,
        lines.rates,
        lines.spread,
        lines.verdicts,
        lines.contests,
        bests,
        lines.edits,
        sheets,
        written,
    )


def _headline(
    judged: Sequence[verdict.Verdict], bests: Sequence[BestScores], races: list[Result]
) -> str:
    """The first sentence; of speedruns on fresh seeds, not on the best attempt."""
    if races:
        return " ".join(map(speedrun_sheets.sentence, races))
    return verdict.headline(judged, bests)


def _first_sheets(
    experiment: Experiment,
    bests: Sequence[BestScores],
    judged: Sequence[verdict.Verdict],
    races: list[Result],
) -> dict[str, list[Sheet]]:
    """The tables of the first section."""
    sheets: list[Sheet] = []
    if races:
        sheets.append(speedrun_sheets.result_sheet(races))
        if any(race.margins for race in races):
            sheets.append(speedrun_sheets.margin_sheet(races))
    if bests:
        sheets.append(verdict.best_sheet(experiment, bests, judged))
    return {"best": sheets} if sheets else {}


def _places(experiment: Experiment, out: Path | str | None) -> tuple[Path, Path]:
    """The page's path, and the folder of everything else, which is made."""
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
    return page, target


def _bests(experiment: Experiment) -> list[BestScores]:
    """The best scores of each task that has some."""
    found = (best.best_scores(experiment, task) for task in experiment.tasks)
    return [one for one in found if one is not None]


def _budgets(experiment: Experiment, curve: str) -> dict[str, list[BudgetUse]]:
    """clock -> the curves of each task that has some."""
    out: dict[str, list[BudgetUse]] = {}
    for clock in curves.CLOCKS:
        found = (
            budget.read_budget(experiment, task, clock, curve)
            for task in experiment.tasks
        )
        out[clock] = [one for one in found if one is not None]
    return out


def _sheets(
    experiment: Experiment,
    used: dict[str, list[BudgetUse]],
    found: list[Contest],
    checks: list[Check],
) -> dict[str, list[Sheet]]:
    """The tables by their place in the page, in the order of tables.md."""
    arms = experiment.arms()
    paper = not (experiment.speedrun or facts.synthetic_tasks(experiment))
    scores = [
        score_sheets.score_sheet(one, arms, paper=paper) for one in used.values() if one
    ]
    if used["total"]:
        scores.append(score_sheets.end_sheet(used["total"], arms, paper=paper))
    test: list[Sheet] = []
    if medals.any_scored(experiment) and not experiment.speedrun:
        test = [score_sheets.test_sheet(experiment, paper=paper)]
        if facts.real_tasks(experiment):
            test.append(score_sheets.medal_sheet(experiment))
    return {
        "contests": [contests.contest_sheet(found)] if found else [],
        "arms": [run_sheets.arm_sheet(experiment), times.time_sheet(experiment)],
        "scores": scores,
        "learning": [run_sheets.learning_sheet(checks)],
        "test": test,
        "failures": [run_sheets.status_sheet(experiment)],
    }


def _sections(
    experiment: Experiment,
    tables: dict[str, list[Sheet]],
    figures: dict[str, list[html.Figure]],
    *,
    few: bool,
) -> list[Section]:
    """The page; with few tasks, sentences replace the table of contests."""
    intro, best = facts.reward_in_words(experiment), html.heading(experiment)
    score = wording.score(experiment.tasks[0])
    tested = ""
    if not tables["test"]:
        tested = "No private test was scored."
        if experiment.speedrun:
            tested = "The test on fresh seeds is the first table."
    return [
        Section(
            "best", best, figures=tuple(figures["best"]),
            sheets=tuple(tables.get("best", ())),
        ),
        Section(
            "rates", "Reward per second", intro=intro, figures=tuple(figures["rates"]),
            sheets=(*(() if few else tables["contests"]), *tables["arms"]),
        ),
        Section(
            "budget", f"Mean {score} of the chains against time",
            figures=tuple(figures["budget"]),
            sheets=tuple(tables["scores"]),
        ),
        Section(
            "learning", "Is the policy learning?", figures=tuple(figures["steps"]),
            sheets=tuple(tables["learning"]),
        ),
        Section(
            "test",
            "Failures" if experiment.speedrun else "Private test and failures",
            intro=tested,
            sheets=(*tables["test"], *tables["failures"]),
        ),
    ]  # fmt: skip
