"""Carve the validation split out of a task's public folder, as files.

`carve` reads a folder in the layout that `mlebench prepare` leaves (synthetic data has
the same one) and writes a second folder of that layout: the training files lack the
validation rows, the test files hold them without labels, the sample submission names
them. A script written against one runs unchanged against the other. Only files that a
rule names are carried over, so that no by-file can leak a label.
"""

import io
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.registry import TaskError
from rpg_tasks.splits import RULES, SplitRule, split_rng, validation_mask
from rpg_tasks.synthetic.common import one_hot, write_csv, write_zip


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


LAYOUTS: dict[str, TableLayout] = {
    "ranzcr-clip": TableLayout(
        test=None,
        id="StudyInstanceUID",
        by_id=("train_annotations.csv",),
        media=(Media("train", "test", "{}.jpg"),),
    ),
    "aptos2019": TableLayout(
        id="id_code", media=(Media("train_images", "test_images", "{}.png"),)
    ),
    "siim-isic": TableLayout(
        id="image_name",
        answer_columns=("image_name", "target"),
        media=(
            Media("jpeg/train", "jpeg/test", "{}.jpg"),
            Media("train", "test", "{}.dcm", optional=True),
        ),
    ),
    "tabular-2021": TableLayout(id="Id", plain_lines=True),
    "insults": TableLayout(
        sample="sample_submission_null.csv",
        id="Comment",
        sample_copies=("Date", "Comment"),
        answer_constants=(("Usage", "PublicTest"),),
    ),
    "jigsaw-toxic": TableLayout(
        answer_columns=(
            "id",
            "toxic",
            "severe_toxic",
            "obscene",
            "threat",
            "insult",
            "identity_hate",
        )
    ),
    "histopathologic": TableLayout(
        train="train_labels.csv",
        test=None,
        answers="answers.csv",
        media=(Media("train", "test", "{}.tif"),),
    ),
    "aerial-cactus": TableLayout(
        test=None, media=(Media("train.zip", "test.zip", "{}"),)
    ),
    "plant-pathology": TableLayout(
        id="image_id", rename="Test_{}", media=(Media("images", "images", "{}.jpg"),)
    ),
    "tabular-2022": TableLayout(plain_lines=True),
    "leaf-classif": TableLayout(
        label="species", media=(Media("images", "images", "{}.jpg"),)
    ),
    "spooky-author": TableLayout(label="author"),
    "nyc-taxi": TableLayout(
        train="labels.csv",
        id="key",
        keep=("GCP-Coupons-Instructions.rtf",),
        plain_lines=True,
    ),
    "dog-breed": TableLayout(
        train="labels.csv",
        test=None,
        label="breed",
        media=(Media("train", "test", "{}.jpg"),),
    ),
    "nomad2018": TableLayout(
        rename="{}", first=1, media=(Media("train", "test", "{}/geometry.xyz"),)
    ),
}


def read_text_table(path: Path | io.BytesIO, **kwargs) -> pd.DataFrame:
    """Read a csv (or its zip) as text: no value is interpreted, rounded or dropped."""
    return pd.read_csv(
        path, dtype=str, keep_default_na=False, encoding="utf-8", **kwargs
    )


def rule_columns(path: Path, rule: SplitRule) -> pd.DataFrame:
    """The columns of a csv that a rule looks at; with none, as many empty rows."""
    columns = [*rule.stratify, *([rule.group] if rule.group else [])]
    if columns:
        return read_text_table(path, usecols=columns)
    with path.open("rb") as handle:
        return pd.DataFrame(index=range(sum(1 for _ in handle) - 1))


def split_lines(source: Path, mask: np.ndarray, kept: Path) -> pd.DataFrame:
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


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it where the file system cannot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if isinstance(error, FileNotFoundError | FileExistsError):
            raise
        shutil.copyfile(source, target)


def fresh_copy(source: Path, target: Path) -> None:
    """Copy bytes alone: a link's inode or a kept date may tell the old name's order."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


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


def carve_table(short: str, seed: int, src: Path, public: Path, private: Path) -> None:
    """Carve a task whose rows stand in one csv table (see `TableLayout`)."""
    layout, rng = LAYOUTS[short], split_rng(short, seed)
    if layout.plain_lines:
        frame = rule_columns(src / layout.train, RULES[short])
        mask = validation_mask(RULES[short], frame, rng)
        train = pd.DataFrame(columns=[layout.id])
        held = split_lines(src / layout.train, mask, public / layout.train)
    else:
        frame = read_text_table(src / layout.train)
        mask = validation_mask(RULES[short], frame, rng)
        train, held = frame[~mask], frame[mask]
        write_csv(train, public / layout.train)
    held = held.iloc[rng.permutation(len(held))]
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
        write_csv(lines[lines[layout.id].isin(set(train[layout.id]))], public / name)
    for name in layout.keep:
        if (src / name).exists():
            link_or_copy(src / name, public / name)
    renamed = list(zip(old_ids, held[layout.id], strict=True))
    for media in layout.media:
        if not (media.optional and not (src / media.train).exists()):
            _carve_media(media, list(train[layout.id]), renamed, src, public)


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
    if not media.train.endswith(".zip"):
        for i in train_ids:
            name = media.name.format(i)
            link_or_copy(src / media.train / name, public / media.train / name)
        for old, new in renamed:
            place = link_or_copy if old == new else fresh_copy
            place(
                src / media.train / media.name.format(old),
                public / media.test / media.name.format(new),
            )
        return
    with zipfile.ZipFile(src / media.train) as archive:
        # Folders inside an archive are kept: the competition's scripts expect them.
        members = {Path(m).name: m for m in archive.namelist() if not m.endswith("/")}
        for place, pairs in (
            (media.train, [(i, i) for i in train_ids]),
            (media.test, renamed),
        ):
            write_zip(
                public / place,
                (
                    (
                        str(Path(members[media.name.format(old)]).parent / new_name)
                        .removeprefix("./")
                        .replace("train/", f"{Path(place).stem}/", 1),
                        archive.read(members[media.name.format(old)]),
                    )
                    for old, new in pairs
                    for new_name in [media.name.format(new)]
                ),
            )


def carve(short: str, seed: int, src: Path, public: Path, private: Path) -> None:
    """Write the validation view of one task.

    Args:
        short: the task's short name.
        seed: draws the rows, with the task's name.
        src: the task's whole public folder.
        public: folder to write what a script may see.
        private: folder, outside public, for the answers.

    Raises:
        FileNotFoundError: `src` lacks a file that the task must have.
        TaskError: a file is damaged, or lacks a column or an archive member.
    """
    from rpg_tasks.carve_special import SPECIAL

    carver: Callable = SPECIAL.get(short, carve_table)
    try:
        carver(short, seed, src, public, private)
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        # Also undecodable text, broken JSON and csv, an archive without a member.
        raise TaskError(
            f"{short}: the files below {src} are not as the task's record says "
            f"({type(error).__name__}: {error}); prepare them again"
        ) from error
    if (src / "description.md").exists():
        link_or_copy(src / "description.md", public / "description.md")


# The TFRecords of siim-isic were cut from the original training records: those of the
# test rows still hold the target, and MLE-Bench leaves them in the public folder.
TELLTALE: dict[str, tuple[str, ...]] = {"siim-isic": ("tfrecords",)}


def has_telltale(short: str, public: Path) -> bool:
    """Whether a prepared public folder holds files that tell the test labels."""
    return any((public / name).exists() for name in TELLTALE.get(short, ()))


def without_telltale(short: str, src: Path, public: Path) -> None:
    """Link or copy a public folder, less the files that tell the test labels."""
    for path in sorted(p for p in src.rglob("*") if p.is_file()):
        name = path.relative_to(src)
        if name.parts[0] not in TELLTALE.get(short, ()):
            link_or_copy(path, public / name)
