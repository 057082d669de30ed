"""One table, many forms: rows of numbers and how each column is written."""

import csv
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpg_tasks.goal import Goal

if TYPE_CHECKING:
    from rich.table import Table

BLANK = "–"

#: A row of a table: numbers and words by name.
Row = dict[str, Any]


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, a dash without one."""
    if value is None or not math.isfinite(value):
        return BLANK
    if value == 0:
        return "0"
    if value == int(value) and abs(value) < 1e15 and abs(value) >= 10 ** (digits - 1):
        return f"{int(value):,}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places > digits + 3:  # 0.0000123: an exponent is shorter
        return f"{value:.{digits - 1}e}"
    return f"{round(value, places):,.{max(places, 0)}f}".replace("-", "−")


def signed(value: float | None, digits: int = 3) -> str:
    """The same with a plus sign."""
    text = number(value, digits)
    return f"+{text}" if value is not None and value > 0 else text


def percent(value: float | None) -> str:
    """A share as per cent."""
    if value is None or not math.isfinite(value):
        return BLANK
    return f"{100 * value:.1f}%"


def spread(mean: float, error: float, digits: int = 3) -> str:
    """mean ± error, both to the error's second digit, or the mean alone."""
    if not math.isfinite(mean):
        return BLANK
    if not math.isfinite(error) or error <= 0:
        return number(mean, digits)
    places = 1 - math.floor(math.log10(error))
    size = math.floor(math.log10(abs(mean))) if mean else 0
    places = min(max(places, 0), max(digits + 2 - size, 0), 9)
    return f"{mean:,.{places}f} ± {error:,.{places}f}".replace("-", "−")


def percent_change(value: float) -> str:
    """A change in per cent with its sign, to a tenth."""
    if not math.isfinite(value):
        return BLANK
    text = f"{value:+,.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def span(low: float, high: float, digits: int = 3) -> str:
    """[low, high]."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return BLANK
    return f"[{number(low, digits)}, {number(high, digits)}]"


def bounded(
    value: float, low: float, high: float, write: Callable[[float], str] | None = None
) -> str:
    """value [low, high], or the value alone; ``write`` instead of ``number``."""
    shown, interval = (write or number)(value), span(low, high)
    return shown if interval == BLANK else f"{shown} {interval}"


def arrow(task: Goal) -> str:
    """Which way is better."""
    return "↑" if task.higher_is_better else "↓"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a sheet.

    Attributes:
        title: its heading.
        text: a row -> what is printed.
        left: aligned to the left (words).
    """

    title: str
    text: Callable[[Row], str]
    left: bool = False


def text_column(name: str) -> Column:
    """A column of words, aligned to the left; a dash for an empty one."""
    return Column(name, lambda row: row[name] or BLANK, left=True)


def task_column() -> Column:
    """The task, with an arrow that says which scores are better."""
    return Column("task", lambda row: f"{row['task']} {row['better']}", left=True)


def with_interval(title: str, value: str, low: str, high: str) -> Column:
    """Numbers with their intervals, as ``bounded`` writes them."""
    return Column(title, lambda r: bounded(r[value], r[low], r[high]))


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table.

    Attributes:
        name: of its files.
        title: above it.
        columns: what is printed.
        rows: numbers at full precision, as they go into the CSV file.
        foot: lines of further cells below the rows, already text.
        note: what a reader must know.
        about: longer explanations, one sentence or two each.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: list[Row]
    foot: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    about: tuple[str, ...] = ()

    @property
    def head(self) -> list[str]:
        """The headings."""
        return [column.title for column in self.columns]

    @property
    def body(self) -> list[list[str]]:
        """The rows as text."""
        return [[c.text(row) for c in self.columns] for row in self.rows]

    def write_csv(self, path: Path) -> Path:
        """All numbers, unrounded; a missing one is an empty field."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        write_csv(path, names, self.rows)
        return path

    def markdown(self) -> str:
        """A pipe table under its title."""

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(map(_inert, cells)) + " |"

        rule = ["---" if c.left else "---:" for c in self.columns]
        lines = [line(self.head), line(rule)]
        lines += [line(cells) for cells in [*self.body, *self.foot]]
        texts = [text for text in (self.note, *self.about) if text]
        return "\n\n".join([f"## {self.title}", "\n".join(lines), *texts]) + "\n"

    def rich(self) -> "Table":
        """For the terminal."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(self.title), title_justify="left")
        for column in self.columns:
            table.add_column(
                escape(column.title), justify="left" if column.left else "right"
            )
        for cells in self.body:
            table.add_row(*map(escape, cells))
        if self.foot:
            table.add_section()
        for words in self.foot:
            table.add_row(*map(escape, words))
        if self.note:
            table.caption = escape(self.note)
            table.caption_justify = "left"
        return table


def write_csv(path: Path, names: Sequence[str], rows: Iterable[Row]) -> None:
    """Rows as CSV; None and NaN become empty fields."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: _cell(v) for k, v in row.items()})


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")):
        return f"'{value}"  # a spreadsheet would run it
    return value


def _inert(text: str) -> str:
    """Text that Markdown shows as it is: reasons may quote what a script wrote."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`|\[\]*])", r"\\\1", text)
