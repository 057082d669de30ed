"""The report's tables on the terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console

from experiments.reporting import facts
from experiments.reporting.build import Report

WIDTH = 160


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


def show(report: Report) -> None:
    """Headline, cautions, tables, and where the files are."""
    console = _console()
    console.print(report.headline, markup=False, highlight=False, style="bold")
    console.print(report.rates, markup=False, highlight=False)
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
