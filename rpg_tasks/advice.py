"""What to change in a submission that was refused, in words with examples.

The verdict is the grader's; this only looks for what is plainly wrong with the table:
columns, ids, text or nothing where a number belongs.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

import pandas as pd

from rpg_tasks.task import Task

_SHOWN = 3  # examples of each kind


def advice(task: Task, table: pd.DataFrame, answers: pd.DataFrame) -> str:
    """What is wrong with a refused table; empty if nothing plain is.

    Args:
        task: the task.
        table: the submission.
        answers: of the split that it was graded on.
    """
    columns = [c for c in (task.id_column, *task.targets) if c in answers.columns]
    found = list(_columns(columns, table))
    if task.id_column in table and task.id_column in answers:
        found += _ids(table[task.id_column], answers[task.id_column])
    targets = [n for n in task.targets if n in table and n in answers]
    if targets:
        expected = {name: answers[name] for name in targets}
    else:  # a column of probabilities for each class
        number = pd.Series([0.0])
        expected = {n: number for n in table.columns if n != task.id_column}
    for name, like in expected.items():
        found += _cells(table, name, like, task.id_column)
        if len(found) > _SHOWN:
            break
    return "; ".join(found)


def _columns(wanted: Collection[str], table: pd.DataFrame) -> Iterable[str]:
    present = [str(name) for name in table.columns]
    for name in wanted:
        if name not in present:
            spare = [p for p in present if p not in wanted]
            folded = {p.strip().lower(): p for p in spare}
            near = difflib.get_close_matches(name.lower(), folded, 1, 0.6)
            if near:
                yield f"rename column {folded[near[0]]!r} to {name!r}"


def _ids(given: pd.Series, wanted: pd.Series) -> Iterable[str]:
    here, there = set(given.astype(str)), set(wanted.astype(str))
    if here and there and not here & there:
        yield (
            f"none of its ids is among these rows (it has {_some(given)}, wanted are "
            f"{_some(wanted)}): predictions for the competition's own test rows are "
            "graded with --split=test"
        )
        return
    doubled = given[given.duplicated()].astype(str)
    # In the answers an id may stand on several rows, one for each of its parts.
    if len(doubled) and not wanted.duplicated().any():
        yield f"give each id once ({len(doubled)} stand again: {_some(doubled)})"
    if missing := [i for i in wanted.astype(str) if i not in here]:
        yield f"add the rows of {len(set(missing))} ids: {_some(missing)}"
    if unknown := [i for i in given.astype(str) if i not in there]:
        count = len(set(unknown))
        yield f"leave out {count} ids that are not asked for: {_some(unknown)}"


def _cells(
    table: pd.DataFrame, name: str, wanted: pd.Series, id_column: str
) -> Iterable[str]:
    column = table[name]
    if isinstance(column, pd.DataFrame):  # the name stands twice
        return
    empty = column.isna()
    if empty.any() and not wanted.isna().any():
        yield f"fill column {name!r} ({_rows(table, empty, id_column)} empty)"
    if not pd.api.types.is_numeric_dtype(wanted):
        return
    text = pd.to_numeric(column, errors="coerce").isna() & ~empty
    if text.any():
        example = str(column[text].iloc[0])[:30]
        yield (
            f"put numbers in column {name!r} ({_rows(table, text, id_column)} "
            f"{example!r})"
        )


def _rows(table: pd.DataFrame, chosen: pd.Series, id_column: str) -> str:
    """How many rows, and which is the first: '2 rows, the first, line 5, id x, is'."""
    count = int(chosen.sum())
    position = int(chosen.to_numpy().argmax())
    which = f"line {position + 2}"
    if id_column in table:
        which += f", id {str(table[id_column].iloc[position])[:40]!r}"
    return f"{which}, is" if count == 1 else f"{count} rows; the first, {which}, is"


def _some(values: Iterable[object]) -> str:
    texts = list(dict.fromkeys(repr(str(value)[:40]) for value in values))
    more = ", ..." if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
