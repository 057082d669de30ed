"""Tables as text: read whole or in part, split line by line, one-hot, samples."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from rpg_tasks.kit.splits import Mask, SplitRule


def read_text_table(
    path: Path | io.BytesIO,
    usecols: Sequence[str] | None = None,
    nrows: int | None = None,
) -> pd.DataFrame:
    """Read a csv (or its zip) as text: no value is interpreted, rounded or dropped."""
    return pd.read_csv(
        path,
        dtype=str,
        keep_default_na=False,
        encoding="utf-8",
        usecols=usecols,
        nrows=nrows,
    )


def rule_columns(path: Path, rule: SplitRule) -> pd.DataFrame:
    """The columns of a csv that a rule looks at; with none, as many empty rows."""
    columns = [*rule.stratify, *([rule.group] if rule.group else [])]
    if columns:
        return read_text_table(path, usecols=columns)
    with path.open("rb") as handle:
        return pd.DataFrame(index=range(sum(1 for _ in handle) - 1))


def split_lines(source: Path, mask: Mask, kept: Path) -> pd.DataFrame:
    """Write the lines of a csv whose mask is False to `kept`; return the others."""
    held = io.BytesIO()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as lines, kept.open("wb") as out:
        header = next(lines)
        held.write(header)
        out.write(header)
        for line, hold in zip(lines, mask, strict=True):
            (held if hold else out).write(line)
    held.seek(0)
    return read_text_table(held)


def sample_like(
    source: Path, rows: pd.DataFrame, id_column: str, copies: tuple[str, ...] = ()
) -> pd.DataFrame:
    """A sample submission for `rows`, with the columns and constants of another one."""
    form = read_text_table(source, nrows=1)
    own = {id_column, *copies}
    return pd.DataFrame(
        {
            c: rows[c].to_numpy() if c in own else np.full(len(rows), form[c].iloc[0])
            for c in form.columns
        }
    )


def one_hot(
    labels: ArrayLike, classes: Iterable[str], **lead: ArrayLike
) -> pd.DataFrame:
    """Integer 0/1 columns, one per class in the order given, after those of `lead`."""
    given = np.asarray(labels)
    return pd.DataFrame({**lead, **{c: (given == c).astype(int) for c in classes}})
