"""Carve a task whose rows stand in one csv table, with files per row where it has some.

Most tasks are of this kind: their `CARVE` is a `TableLayout`, and no code.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rpg_tasks.kit.files import fresh_copy, link_or_copy, write_csv, write_zip
from rpg_tasks.kit.frames import (
    one_hot,
    read_text_table,
    rule_columns,
    sample_like,
    split_lines,
)
from rpg_tasks.kit.splits import Draw


@dataclass(frozen=True)
class Media:
    """Files that go with the rows: one per id, in a folder or in a zip.

    Attributes:
        train: folder or zip of the training files, relative to public.
        test: the same for the test files.
        name: file name for a row, `{}` stands for its id.
        optional: absent from reduced copies of the data.
    """

    train: str
    test: str
    name: str
    optional: bool = False


@dataclass(frozen=True)
class TableLayout:
    """Files and columns of a task whose rows stand in one csv table.

    Attributes:
        train: training table with labels.
        test: test table, None where the competition has none.
        sample: sample submission.
        answers: name of the private file.
        id: id column.
        answer_columns: columns of the private file; None: all of the training table.
        answer_constants: further columns of the private file with their value.
        label: column that the private file shows one-hot, in the sample's column order.
        sample_copies: sample columns that repeat the row rather than a constant.
        rename: new ids for validation rows, `{}` counts from `first`; None keeps them.
        first: first number of the new ids.
        by_id: tables with any number of lines per id, of which the training part stays.
        keep: files without labels that are carried over unchanged.
        media: files per row.
        plain_lines: every row is one line (no quoted line breaks), and there may be
            millions: the training table is split line by line, not read whole.
    """

    train: str = "train.csv"
    test: str | None = "test.csv"
    sample: str = "sample_submission.csv"
    answers: str = "test.csv"
    id: str = "id"
    answer_columns: tuple[str, ...] | None = None
    answer_constants: tuple[tuple[str, str], ...] = ()
    label: str | None = None
    sample_copies: tuple[str, ...] = ()
    rename: str | None = None
    first: int = 0
    by_id: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    media: tuple[Media, ...] = ()
    plain_lines: bool = False


def carve_table(
    layout: TableLayout, draw: Draw, src: Path, public: Path, private: Path
) -> None:
    """Write the validation view of a task with this layout.

    Args:
        layout: files and columns.
        draw: the draw of the validation rows.
        src: the whole public folder.
        public: folder to write what a script may see.
        private: folder for the answers.
    """
    train_ids, held = _split(layout, draw, src, public)
    held = held.iloc[draw.rng.permutation(len(held))]
    old_ids = held[layout.id].to_numpy()
    if layout.rename is not None:
        new = [layout.rename.format(k + layout.first) for k in range(len(held))]
        held = held.assign(**{layout.id: new})
    if layout.test is not None:
        shown = read_text_table(src / layout.test, nrows=0).columns
        write_csv(held[list(shown)], public / layout.test)
    sample = sample_like(src / layout.sample, held, layout.id, layout.sample_copies)
    write_csv(sample, public / layout.sample)
    write_csv(_answers(layout, held, sample), private / layout.answers)
    for name in layout.by_id:
        lines = read_text_table(src / name)
        write_csv(lines[lines[layout.id].isin(set(train_ids))], public / name)
    for name in layout.keep:
        if (src / name).exists():
            link_or_copy(src / name, public / name)
    renamed = list(zip(old_ids, held[layout.id], strict=True))
    for media in layout.media:
        if not (media.optional and not (src / media.train).exists()):
            _carve_media(media, train_ids, renamed, src, public)


def _split(
    layout: TableLayout, draw: Draw, src: Path, public: Path
) -> tuple[list[str], pd.DataFrame]:
    """Write the training table; return its ids and the rows that are kept back."""
    if layout.plain_lines:
        mask = draw.mask(rule_columns(src / layout.train, draw.rule))
        # Tasks of millions of lines have no files per row: nobody asks for these ids.
        return [], split_lines(src / layout.train, mask, public / layout.train)
    frame = read_text_table(src / layout.train)
    mask = draw.mask(frame)
    write_csv(frame[~mask], public / layout.train)
    return list(frame[layout.id][~mask]), frame[mask]


def _answers(
    layout: TableLayout, held: pd.DataFrame, sample: pd.DataFrame
) -> pd.DataFrame:
    if layout.label is not None:
        classes = [c for c in sample.columns if c != layout.id]
        ids = {layout.id: held[layout.id].to_numpy()}
        return one_hot(held[layout.label].to_numpy(), classes, **ids)
    if layout.answer_columns is not None:
        held = held[list(layout.answer_columns)]
    return held.assign(**dict(layout.answer_constants))


def _carve_media(
    media: Media,
    train_ids: list[str],
    renamed: list[tuple[str, str]],
    src: Path,
    public: Path,
) -> None:
    if media.train.endswith(".zip"):
        kept = [(i, i) for i in train_ids]
        with zipfile.ZipFile(src / media.train) as archive:
            for place, pairs in ((media.train, kept), (media.test, renamed)):
                _carve_zip(media, archive, pairs, public / place)
        return
    for i in train_ids:
        name = media.name.format(i)
        link_or_copy(src / media.train / name, public / media.train / name)
    for old, new in renamed:
        put = link_or_copy if old == new else fresh_copy
        put(
            src / media.train / media.name.format(old),
            public / media.test / media.name.format(new),
        )


def _carve_zip(
    media: Media, archive: zipfile.ZipFile, pairs: list[tuple[str, str]], place: Path
) -> None:
    """Write the zip of some rows, (old id, new id) each, from that of all rows."""
    # Folders inside an archive are kept: the competition's scripts expect them.
    members = {Path(m).name: m for m in archive.namelist() if not m.endswith("/")}
    files = []
    for old, new in pairs:
        member = members[media.name.format(old)]
        path = str(Path(member).parent / media.name.format(new)).removeprefix("./")
        name = path.replace("train/", f"{place.stem}/", 1)
        files.append((name, archive.read(member)))
    write_zip(place, files)
