"""Does anything under a script's public folder tell the hidden labels?

The strong check is non-interference: change every hidden field of the validation rows
in the source, carve again with the same rows, and compare every public byte, archives
included. The others look at the files as they are.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rpg_tasks.archives import read_file
from rpg_tasks.building import carve, new_draw
from rpg_tasks.checks import View, differing, digests, read_text, views, walk
from rpg_tasks.kit import Draw, Mask, TableLayout
from rpg_tasks.prepare import TaskData
from rpg_tasks.taskcode import load_code

Scramble = Callable[[Path, Mask], None]
"""(public folder, rows kept back): changes every hidden field of those rows."""


def _table(name: str, blob: bytes) -> pd.DataFrame | None:
    """A csv or JSON file as text; None for other files."""
    if name.endswith(".json"):
        return pd.DataFrame(json.loads(blob)).astype(str)
    if name.endswith(".csv"):
        return read_text(blob)
    return None


def shown_targets(data: TaskData) -> list[str]:
    """No table shows a hidden row together with a target."""
    return [problem for view in views(data) for problem in _shown(data, view)]


def _shown(data: TaskData, view: View) -> list[str]:
    task, wrong = data.task, []
    answers = read_text(view.answers)
    ids = set(answers[task.id_column])
    targets = set(task.targets) or set(answers.columns) - {task.id_column}
    layout = load_code(task).carve
    renumbered = isinstance(layout, TableLayout) and layout.rename == "{}"
    for name, blob in walk(view.public):
        file, _, member = name.rpartition("!")
        if (file or member).endswith(Path(task.sample_file).name):
            continue
        if renumbered and "train" in member:
            continue  # ids count from the same number in both parts, by design
        table = _table(member, blob)
        if table is None or task.id_column not in table:
            continue
        seen = targets & set(table.columns)
        if seen and table[task.id_column].isin(ids).any():
            wrong.append(f"{view.name}: {name} shows {sorted(seen)} of hidden rows")
    return wrong


def telling_sample(data: TaskData) -> list[str]:
    """The sample submission is constant; what it may copy is in the record."""
    task, wrong = data.task, []
    layout = load_code(task).carve
    copied = {task.id_column, *(c for c, v in task.sample.items() if v == "copy")}
    if isinstance(layout, TableLayout):
        copied |= set(layout.sample_copies)
    for view in views(data):
        sample = pd.read_csv(
            io.BytesIO(read_file(view.sample)), keep_default_na=False, dtype=str
        )
        columns = [c for c in sample if c not in copied]
        if columns and len(sample[columns].drop_duplicates()) != 1:
            wrong.append(f"{view.name}: rows of the sample submission differ")
    return wrong


class _Remembering(Draw):
    """A draw that keeps its rows and where its generator stood after them."""

    def __init__(self, draw: Draw) -> None:
        super().__init__(draw.rule, draw.rng)
        self.rows: Mask | None = None
        self.state: Any = None

    def mask(self, frame: pd.DataFrame) -> Mask:
        self.rows = super().mask(frame)
        self.state = self.rng.bit_generator.state
        return self.rows


class _Repeating(Draw):
    """The same rows once more, whatever the rule would say now."""

    def __init__(self, first: _Remembering) -> None:
        super().__init__(first.rule, first.rng)
        self._first = first

    def mask(self, frame: pd.DataFrame) -> Mask:
        if self._first.rows is None:
            raise ValueError("nothing was drawn before")
        self.rng.bit_generator.state = self._first.state
        return self._first.rows


def telling_bytes(
    data: TaskData, folder: Path, scramble: Scramble | None = None
) -> list[str]:
    """Public bytes do not depend on what is hidden of the validation rows.

    Args:
        data: a prepared task.
        folder: an empty folder to work in.
        scramble: changes the hidden fields; None for a task whose carver is a
            ``TableLayout``.

    Raises:
        ValueError: the carver is a function and there is no ``scramble``.
    """
    task = data.task
    layout = load_code(task).carve
    if scramble is None and not isinstance(layout, TableLayout):
        raise ValueError(f"{task.short}: a carver that is a function needs a scramble")
    source = folder / "source"
    shutil.copytree(data.test_public, source)
    first = _Remembering(new_draw(task, data.seed))
    before = _carved(data, source, folder / "before", first)
    if first.rows is None:
        return ["the carver asked for no draw"]
    if scramble is not None:
        scramble(source, first.rows)
    elif isinstance(layout, TableLayout):
        scramble_table(layout, source, first.rows)
    after = _carved(data, source, folder / "after", _Repeating(first))
    wrong = []
    if before["private"] == after["private"]:
        wrong.append("changing the hidden fields changed no answer")
    changed = differing(before["public"], after["public"])
    if changed:
        wrong.append(f"public files change with hidden fields: {changed[:5]}")
    return wrong


def _carved(
    data: TaskData, source: Path, place: Path, draw: Draw
) -> dict[str, dict[str, str]]:
    parts = {name: place / name for name in ("public", "private")}
    carve(data.task, data.seed, source, parts["public"], parts["private"], draw)
    return {name: digests(part) for name, part in parts.items()}


def _other(values: NDArray[np.object_], mask: Mask) -> NDArray[np.object_]:
    """The masked values, each replaced by another of the column, if there is one."""
    out = values.copy()
    kinds = sorted(set(values.tolist()))
    step = dict(zip(kinds, [*kinds[1:], kinds[0]], strict=True))
    out[mask] = [step[v] for v in values[mask].tolist()]
    return out


def scramble_table(layout: TableLayout, source: Path, mask: Mask) -> None:
    """Change the columns that the test table lacks, and the lines by id."""
    frame = read_text(source / layout.train)
    shown = {layout.id}
    if layout.test is not None:
        shown |= set(read_text(source / layout.test).columns)
    for column in frame.columns.difference(shown):
        frame[column] = _other(frame[column].to_numpy(dtype=object), mask)
    # A file may be a hard link: written again, not over.
    (source / layout.train).unlink()
    frame.to_csv(source / layout.train, index=False)
    for name in layout.by_id:
        lines = read_text(source / name)
        held = lines[layout.id].isin(frame[layout.id][mask])
        lines.loc[held, [c for c in lines if c != layout.id]] = "changed"
        (source / name).unlink()
        lines.to_csv(source / name, index=False)
