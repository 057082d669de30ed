"""Other people's attempts: a CSV file with seconds and scores."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.reporting.runs import ReportError
from experiments.reporting.spread import TaskSpread, measure
from rpg_jax.spread import wasted_share

#: Names of a column of groups that is used unasked.
GROUPS = ("task", "group")
_NONE = ("", "nan", "none", "null")


class Columns(NamedTuple):
    """Names of the columns; ``group`` None takes one of ``GROUPS`` that is there."""

    seconds: str = "seconds"
    score: str = "score"
    group: str | None = None


_NAMES = Columns()


def read_spreads(
    path: Path | str,
    columns: Columns = _NAMES,
    *,
    lower_is_better: bool = False,
    bins: int = 5,
) -> list[TaskSpread]:
    """One row a group of a CSV file; its lines are attempts in the order of the work.

    Without parents on record, ``wasted`` counts every attempt that set no new best.

    Args:
        path: of the file, with a line of column names.
        columns: see ``Columns``; an empty score is a failure, which may have no
            seconds.
        lower_is_better: of the scores.
        bins: of equal value, at least.

    Raises:
        ReportError: the file cannot be read or used; one line says why.
    """
    groups: dict[str, list[tuple[float, float]]] = {}
    for group, score, seconds in _lines(Path(path), columns):
        value = -score if lower_is_better else score
        groups.setdefault(group, []).append((value, seconds))
    scored = sum(not math.isnan(v) for rows in groups.values() for v, _ in rows)
    if scored < 2:
        raise ReportError(
            f"{path} has {scored} attempts with a score: W needs at least {8 * bins}"
        )
    out = []
    for group, rows in groups.items():
        value, seconds = np.array(rows, float).T
        wasted = wasted_share(value, seconds)
        found = measure(
            group, "", value, seconds, attempts=len(rows), wasted=wasted, bins=bins
        )
        out.append(found)
    return out


def _lines(path: Path, columns: Columns) -> Iterator[tuple[str, float, float]]:
    """(group, score, seconds) of each line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            group = _check(path, list(reader.fieldnames or ()), columns)
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                score = math.nan
                if (row[columns.score] or "").strip().lower() not in _NONE:
                    score = _number(place, row, columns.score)
                seconds = _seconds(place, row, columns.seconds, math.isnan(score))
                name = row[group] if group else ""
                yield name or path.stem, score, seconds
    except OSError as error:
        raise ReportError(f"cannot read {path} ({error.strerror or error})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReportError(f"{path} is no CSV file in UTF-8 ({error})") from None


def _check(path: Path, names: list[str], columns: Columns) -> str | None:
    """The column of groups, None without one; all others must be there."""
    for flag, name in zip(("seconds", "score", "group"), columns, strict=True):
        if name is not None and name not in names:
            there = ", ".join(names) or "no columns"
            raise ReportError(
                f"{path} has no column {name!r} (it has {there}): name it with "
                f"--{flag}_column"
            )
    if columns.group is not None:
        return columns.group
    return next((name for name in GROUPS if name in names), None)


def _seconds(
    place: str, row: Mapping[str, str | None], name: str, failed: bool
) -> float:
    """Above 0; a failure may have none, or nobody has written them down."""
    if failed and (row[name] or "").strip().lower() in _NONE:
        return 0.0
    seconds = _number(place, row, name)
    if seconds < 0 or (seconds == 0 and not failed):
        raise ReportError(f"{place}: {name} is {row[name]}: it must be above 0")
    return seconds


def _number(place: str, row: Mapping[str, str | None], name: str) -> float:
    text = row[name]
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ReportError(f"{place}: {name} is {text!r}, not a number")
    return value
