"""From two tables to a score: the checks of MLE-Bench's graders as four small policies.

The 22 graders differ in which columns and rows they insist on, which values they
accept, and whether they match rows by id. Each policy below is one such rule;
``task.toml`` says which a task uses. A verdict equals MLE-Bench's: the same score, or
invalid for the same submissions. That includes its leniencies (a taxi fare with a
wrong key is scored, nomad2018 goes by file order), because a stricter reward would be
a different task.

Anything a submission can cause ends as ``InvalidSubmission`` with a reason.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from rpg_tasks import metrics
from rpg_tasks.submission import InvalidSubmission
from rpg_tasks.task import Task, TaskError

# Rows of probabilities must sum to 1 within numpy's isclose(atol=1e-6), i.e. 1.1e-5.
SUM_ATOL = 1e-6

# warnings.catch_warnings is process-wide: one grading at a time may silence them.
_quiet = threading.Lock()


def target_columns(task: Task, answers: pd.DataFrame) -> list[str]:
    """The graded columns: the task's, or all of the answers but the id."""
    if task.targets:
        return list(task.targets)
    return [name for name in answers.columns if name != task.id_column]


# --- columns: which ones must be there ------------------------------------------------


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _need(table: pd.DataFrame, names: list[str]) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise InvalidSubmission(
            f"missing column {_listed(missing)}; the file has "
            f"{_listed(list(map(str, table.columns)))}"
        )


def _columns_required(table: pd.DataFrame, id_column: str, targets: list[str]) -> None:
    _need(table, [id_column, *targets])


def _columns_targets(table: pd.DataFrame, id_column: str, targets: list[str]) -> None:
    del id_column  # never looked at by the grader of nomad2018
    _need(table, targets)


def _columns_exact(table: pd.DataFrame, id_column: str, targets: list[str]) -> None:
    _need(table, [id_column, *targets])
    extra = [str(name) for name in table.columns if name not in {id_column, *targets}]
    if extra:
        raise InvalidSubmission(f"unexpected column {_listed(extra)}")


def _columns_id_first(table: pd.DataFrame, id_column: str, targets: list[str]) -> None:
    _columns_exact(table, id_column, targets)
    if table.columns[0] != id_column:
        raise InvalidSubmission(f"the first column must be {id_column!r}")


COLUMNS: dict[str, Callable[[pd.DataFrame, str, list[str]], None]] = {
    "required": _columns_required,
    "exact": _columns_exact,
    "id_first": _columns_id_first,
    "targets": _columns_targets,
}


# --- rows: how many, and whose --------------------------------------------------------


def _rows_count(table: pd.DataFrame, answers: pd.DataFrame, id_column: str) -> None:
    del id_column
    if len(table) != len(answers):
        raise InvalidSubmission(
            f"expected {len(answers)} rows as in the sample submission, "
            f"got {len(table)}"
        )


def _rows_id_set(table: pd.DataFrame, answers: pd.DataFrame, id_column: str) -> None:
    given, wanted = set(table[id_column]), set(answers[id_column])
    if given != wanted:
        raise InvalidSubmission(
            f"the {id_column} values differ from the sample submission's: "
            f"{len(wanted - given)} missing, {len(given - wanted)} unknown"
        )
    _rows_count(table, answers, id_column)


ROWS: dict[str, Callable[[pd.DataFrame, pd.DataFrame, str], None]] = {
    "count": _rows_count,
    "id_set": _rows_id_set,
}


# --- values: what a prediction may be -------------------------------------------------


def _values_any(table: pd.DataFrame, targets: list[str]) -> pd.DataFrame:
    del targets
    return table


def _values_float(table: pd.DataFrame, targets: list[str]) -> pd.DataFrame:
    table = table.copy(deep=False)
    for name in targets:
        try:
            table[name] = table[name].astype(np.float64)
        except (ValueError, TypeError, OverflowError):
            raise InvalidSubmission(f"column {name!r} must hold numbers") from None
    return table


def as_text(column: pd.Series) -> pd.Series:
    """Each value as text; a missing one becomes ``nan`` under every pandas version."""
    values = column.to_numpy(dtype=object)
    text = np.empty(len(values), dtype=object)
    text[:] = [value if isinstance(value, str) else str(value) for value in values]
    return pd.Series(text, index=column.index, dtype=object)


def _values_text(table: pd.DataFrame, targets: list[str]) -> pd.DataFrame:
    table = table.copy(deep=False)
    for name in targets:
        table[name] = as_text(table[name])
    return table


def _values_probability(table: pd.DataFrame, targets: list[str]) -> pd.DataFrame:
    for name in targets:
        column = table[name]
        try:
            pd.to_numeric(column)
        except (ValueError, TypeError):
            raise InvalidSubmission(f"column {name!r} must hold numbers") from None
        # Missing values are skipped here; the metric refuses them.
        if column.min() < 0 or column.max() > 1:
            raise InvalidSubmission(f"column {name!r} must lie between 0 and 1")
    return table


def _values_unit_interval(table: pd.DataFrame, targets: list[str]) -> pd.DataFrame:
    block = table[targets]
    if not ((block >= 0) & (block <= 1)).to_numpy().all():
        raise InvalidSubmission(f"column {_listed(targets)} must lie between 0 and 1")
    return table


def _values_distribution(table: pd.DataFrame, targets: list[str]) -> pd.DataFrame:
    block = table[targets]
    sums = block.sum(axis=1)
    if not np.isclose(sums, 1.0, atol=SUM_ATOL).all():
        worst = float(np.nanmax(np.abs(np.asarray(sums, dtype=np.float64) - 1.0)))
        raise InvalidSubmission(
            f"the probabilities of each row must sum to 1 (worst is off by {worst:.3g})"
        )
    if not ((block >= 0) & (block <= 1)).to_numpy().all():
        raise InvalidSubmission("every probability must lie between 0 and 1")
    return table


VALUES: dict[str, Callable[[pd.DataFrame, list[str]], pd.DataFrame]] = {
    "any": _values_any,
    "float": _values_float,
    "text": _values_text,
    "probability": _values_probability,
    "unit_interval": _values_unit_interval,
    "distribution": _values_distribution,
}


# --- align: which row of the submission belongs to which answer -----------------------


def _align_sorted_unchecked(
    table: pd.DataFrame, answers: pd.DataFrame, id_column: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    # The default sort is what MLE-Bench uses: it decides how equal ids are paired.
    return table.sort_values(id_column), answers.sort_values(id_column)


def _align_sorted(
    table: pd.DataFrame, answers: pd.DataFrame, id_column: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    given, wanted = table[id_column].to_numpy(), answers[id_column].to_numpy()
    # Rows in the answers' order, each id once: sorting them would change nothing.
    if (given == wanted).all() and answers[id_column].is_unique:
        return table, answers
    table, answers = _align_sorted_unchecked(table, answers, id_column)
    given, wanted = table[id_column].to_numpy(), answers[id_column].to_numpy()
    differ = given != wanted
    if differ.any():
        first = wanted[int(np.argmax(differ))]
        raise InvalidSubmission(
            f"the {id_column} values differ from the sample submission's "
            f"(in sorted order the first difference is at {str(first)[:60]!r})"
        )
    return table, answers


def _align_index_masked(
    table: pd.DataFrame, answers: pd.DataFrame, id_column: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    # jigsaw-toxic: rows whose answers are -1 are not scored. Rows are matched by id
    # only through this mask; the rest goes by position among the sorted ids.
    table = table.set_index(id_column).sort_index()
    answers = answers.set_index(id_column).sort_index()
    scored = answers.sum(axis=1) >= 0
    unknown = ~table.index.isin(answers.index)
    if unknown.any():
        raise InvalidSubmission(
            f"{int(unknown.sum())} {id_column} values are not in the sample submission"
        )
    table, answers = table[scored.reindex(table.index).to_numpy()], answers[scored]
    if len(table) != len(answers):
        raise InvalidSubmission(
            f"the {id_column} values differ from the sample submission's"
        )
    return table, answers


def _align_file_order(
    table: pd.DataFrame, answers: pd.DataFrame, id_column: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    del id_column
    return table, answers


ALIGN: dict[
    str,
    Callable[[pd.DataFrame, pd.DataFrame, str], tuple[pd.DataFrame, pd.DataFrame]],
] = {
    "sorted": _align_sorted,
    "sorted_unchecked": _align_sorted_unchecked,
    "index_masked": _align_index_masked,
    "file_order": _align_file_order,
}


def check_grading(task: Task) -> None:
    """Refuse a record that names a metric or a policy that is not here.

    Raises:
        TaskError: names the file, the key and the choices.
    """
    choices: dict[str, Iterable[str]] = {
        "metric": metrics.METRICS,
        "columns": COLUMNS,
        "rows": ROWS,
        "values": VALUES,
        "align": ALIGN,
    }
    for key, known in choices.items():
        name = getattr(task.grading, key)
        if name not in known:
            raise TaskError(
                f"{task.record}: grading.{key}: there is no {name!r}; choose from "
                f"{', '.join(known)}"
            )


def _score(task: Task, table: pd.DataFrame, answers: pd.DataFrame) -> float:
    grading, id_column = task.grading, task.id_column
    targets = target_columns(task, answers)
    COLUMNS[grading.columns](table, id_column, targets)
    ROWS[grading.rows](table, answers, id_column)
    table = VALUES[grading.values](table, targets)
    if grading.values == "text":
        answers = _values_text(answers, targets)
    table, answers = ALIGN[grading.align](table, answers, id_column)
    if grading.align != "index_masked":
        table, answers = table[targets], answers[targets]
    return metrics.METRICS[grading.metric](answers, table)


def score_tables(task: Task, table: pd.DataFrame, answers: pd.DataFrame) -> float:
    """The task's metric of a submission, in metric units.

    Args:
        task: which columns, checks and metric.
        table: the submission's frame.
        answers: the answers' frame.

    Raises:
        InvalidSubmission: the submission breaks a rule, a computation on it fails, or
            the metric has no value; the message is the reason.
        TaskError: the answers are not this task's.
    """
    needed = [task.id_column, *task.targets]
    if task.grading.columns == "targets":
        needed = list(task.targets)
    missing = [name for name in needed if name not in answers.columns]
    if missing:
        raise TaskError(
            f"these are not answers of {task.short}: no column {_listed(missing)}"
        )
    with _quiet, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            score = _score(task, table, answers)
        except (InvalidSubmission, TaskError):
            raise
        except (MemoryError, OSError):
            raise  # the machine's trouble, not the submission's
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            raise InvalidSubmission(
                f"{type(error).__name__}: {text}", status="error"
            ) from error
    if not math.isfinite(score):
        raise InvalidSubmission(f"the metric of this submission is {score}", "nan")
    return score
