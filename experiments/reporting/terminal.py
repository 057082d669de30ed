"""The report's tables on the terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console

from experiments.reporting import facts
from experiments.reporting import plot as plotting
from experiments.reporting.build import Report
from experiments.reporting.edits import Edit
from experiments.reporting.sheet import number

WIDTH = 160
#: Lines of an edit on the terminal.
CHANGED = 8


def _console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    # A pipe has no width: rich would wrap tables to 80 columns.
    return Console(file=stream, width=None if stream.isatty() else WIDTH)


@contextlib.contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """A line that says what is being done; only on a terminal."""
    console = _console(stderr=True)
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    with console.status("report") as status:
        yield lambda what: status.update(what)


def plotted(wanted: bool | None) -> bool:
    """Whether curves are printed: as asked for, else on a terminal alone."""
    return sys.stdout.isatty() if wanted is None else wanted


def story(report: Report, console: Console, *, plot: bool | None = None) -> None:
    """The curve of each task, and the edits that improved it most, in short."""
    if not plotted(plot):
        return
    encoding = (getattr(console.file, "encoding", None) or "utf-8").lower()
    for best in report.best:
        text = plotting.text(
            best, width=console.width, unicode=encoding.startswith("utf")
        )
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    for edits in report.edits.values():
        for edit in edits:
            for line in _edit_lines(edit):
                console.print(line, markup=False, highlight=False, no_wrap=True,
                              overflow="ellipsis")  # fmt: skip


def _edit_lines(edit: Edit) -> list[str]:
    scores = f"{number(edit.before, 4)} -> {number(edit.after, 4)}"
    seconds = f"{number(edit.seconds_before)} -> {number(edit.seconds_after)} s"
    head = f"edit    {edit.run}: {scores}, {seconds}"
    rest = len(edit.changed) - CHANGED
    more = [f"        ({rest} more lines)"] if rest > 0 else []
    return [head, *(f"        {line}" for line in edit.changed[:CHANGED]), *more]


def show(report: Report, *, plot: bool | None = None) -> None:
    """Headline, curves, cautions, tables, and where the files are."""
    console = _console()
    console.print(report.headline, markup=False, highlight=False, style="bold")
    story(report, console, plot=plot)
    console.print(report.rates, markup=False, highlight=False)
    if report.spread:
        console.print(report.spread, markup=False, highlight=False)
    for line in facts.cautions(report.experiment):
        console.print(line, markup=False, highlight=False)
    for line in report.experiment.unfinished[:10]:
        console.print(f"  {line}", markup=False, highlight=False)
    if len(report.experiment.unfinished) > 10:
        console.print(f"  and {len(report.experiment.unfinished) - 10} more")
    for sheet in report.sheets:
        if sheet.name == "failures":
            continue  # long, and in the files
        console.print()
        console.print(sheet.rich())
    console.print()
    print(f"page: {report.page}")
    print(f"tables and figures: {report.page.parent}")
