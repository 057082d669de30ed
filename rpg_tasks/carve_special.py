"""Validation splits of tasks whose rows stand in archives, names or odd text files."""

import csv
import errno
import hashlib
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from rpg_tasks.carve import (
    fresh_copy,
    link_or_copy,
    read_text_table,
    sample_like,
)
from rpg_tasks.splits import (
    RULES,
    split_rng,
    validation_mask,
)
from rpg_tasks.synthetic.common import (
    csv_bytes,
    write_csv,
    write_file,
    write_zip,
)

NUM_SPECIES = 19


def carve_textnorm(
    short: str, seed: int, src: Path, public: Path, private: Path
) -> None:
    """Whole sentences; ids are renumbered from 0 on both sides, as in the test."""
    lang = short.removeprefix("textnorm-")
    frame = read_text_table(src / f"{lang}_train.csv.zip")
    mask = validation_mask(RULES[short], frame, split_rng(short, seed))
    parts = []
    for part in (frame[~mask], frame[mask]):
        part = part.assign(sentence_id=pd.factorize(part["sentence_id"])[0])
        parts.append(part.astype({"token_id": int}))
    write_textnorm(lang, *parts, public, private)


def write_textnorm(
    lang: str, train: pd.DataFrame, held: pd.DataFrame, public: Path, private: Path
) -> None:
    """Write the three public zips and the private answers of a text-normalisation task.

    Args:
        lang: "en" or "ru", the files' prefix.
        train: sentence_id, token_id, class, before, after.
        held: the same columns for the rows that scripts must answer.
        public: folder for the zips.
        private: folder for the answers.
    """
    quoted = {"quoting": csv.QUOTE_NONNUMERIC}
    ids = held["sentence_id"].astype(str) + "_" + held["token_id"].astype(str)
    sample = pd.DataFrame({"id": ids, "after": held["before"]})
    tables = {
        f"{lang}_train.csv": train,
        f"{lang}_test_2.csv": held[["sentence_id", "token_id", "before"]],
        f"{lang}_sample_submission_2.csv": sample,
    }
    for name, table in tables.items():
        write_zip(public / f"{name}.zip", [(name, csv_bytes(table, **quoted))])
    write_csv(sample.assign(after=held["after"]), private / "answers.csv", **quoted)


def carve_pizza(short: str, seed: int, src: Path, public: Path, private: Path) -> None:
    """Json records by requester; validation rows show the test fields and no giver."""
    records = json.loads((src / "train.json").read_text("utf-8"))
    fields = list(json.loads((src / "test.json").read_text("utf-8"))[0])
    frame = pd.DataFrame(
        {
            "requester_username": [r["requester_username"] for r in records],
            "outcome": [bool(r["requester_received_pizza"]) for r in records],
        }
    )
    rng = split_rng(short, seed)
    mask = validation_mask(RULES[short], frame, rng)
    train = [r for r, held in zip(records, mask, strict=True) if not held]
    held = [records[i] for i in rng.permutation(np.flatnonzero(mask))]
    # A known giver means that a pizza was given: the field is blanked where it tells.
    hidden = {"giver_username_if_known": "N/A"}
    shown = [{k: hidden.get(k, r[k]) for k in fields} for r in held]
    for name, rows in (("train", train), ("test", shown)):
        data = json.dumps(rows, indent=4).encode()
        write_file(public / f"{name}.json", data)
        write_zip(public / f"{name}.zip", [(f"{name}.json", data)])
    answers = pd.DataFrame(
        {
            "request_id": [r["request_id"] for r in held],
            "requester_received_pizza": [
                int(r["requester_received_pizza"]) for r in held
            ],
        }
    )
    write_csv(answers, private / "test.csv")
    sample = sample_like(src / "sampleSubmission.csv", answers, "request_id")
    write_csv(sample, public / "sampleSubmission.csv")


def carve_whale(short: str, seed: int, src: Path, public: Path, private: Path) -> None:
    """The last training day: the test split lies in later days, too.

    The label is the last character of a training clip's name; validation clips are
    renamed as the competition renames its test clips.
    """
    with zipfile.ZipFile(src / "train2.zip") as archive:
        names = sorted(m for m in archive.namelist() if m.endswith(".aif"))
        frame = pd.DataFrame({"name": names})
        frame["day"] = [Path(m).name.split("_")[0] for m in names]
        mask = validation_mask(RULES[short], frame, split_rng(short, seed))
        train = frame["name"][~mask]
        held = frame["name"][mask]
        clips = [
            re.sub(r"TRAIN\d+_[01]\.aif$", f"Test{k}.aif", Path(m).name)
            for k, m in enumerate(held)
        ]
        write_zip(public / "train2.zip", ((m, archive.read(m)) for m in train))
        write_zip(
            public / "test2.zip",
            ((f"test2/{c}", archive.read(m)) for c, m in zip(clips, held, strict=True)),
        )
    labels = [int(m.endswith("_1.aif")) for m in held]
    answers = pd.DataFrame({"clip": clips, "probability": labels})
    write_csv(answers, private / "test.csv")
    sample = sample_like(src / "sampleSubmission.csv", answers, "clip")
    write_csv(sample, public / "sampleSubmission.csv")


def _missing(folder: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "holds no images", str(folder))


def carve_dogs_vs_cats(
    short: str, seed: int, src: Path, public: Path, private: Path
) -> None:
    """The label is in the training file's name; validation images get numbers."""
    rng = split_rng(short, seed)
    names = sorted(p.name for p in (src / "train").glob("*.jpg"))
    if not names:
        raise _missing(src / "train")
    frame = pd.DataFrame({"name": names, "animal": [n.split(".")[0] for n in names]})
    mask = validation_mask(RULES[short], frame, rng)
    held = frame[mask].iloc[rng.permutation(int(mask.sum()))]
    answers = pd.DataFrame(
        {
            "id": np.arange(1, len(held) + 1),
            "label": (held["animal"] == "dog").astype(int).to_numpy(),
        }
    )
    for name in frame["name"][~mask]:
        link_or_copy(src / "train" / name, public / "train" / name)
    for number, name in zip(answers["id"], held["name"], strict=True):
        fresh_copy(src / "train" / name, public / "test" / f"{number}.jpg")
    for part in ("train", "test"):
        files = (public / part).glob("*.jpg")
        write_zip(public / f"{part}.zip", ((p.name, p.read_bytes()) for p in files))
    write_csv(answers, private / "answers.csv")
    sample = sample_like(src / "sample_submission.csv", answers, "id")
    write_csv(sample, public / "sample_submission.csv")


def carve_denoising(
    short: str, seed: int, src: Path, public: Path, private: Path
) -> None:
    """Whole pages: the same clean page may come with several kinds of dirt."""
    clean = sorted((src / "train_cleaned").glob("*.png"))
    if not clean:
        raise _missing(src / "train_cleaned")
    page = [hashlib.sha256(p.read_bytes()).hexdigest() for p in clean]
    frame = pd.DataFrame({"name": [p.name for p in clean], "page": page})
    mask = validation_mask(RULES[short], frame, split_rng(short, seed))
    for name in frame["name"][~mask]:
        for folder in ("train", "train_cleaned"):
            link_or_copy(src / folder / name, public / folder / name)
    held = list(frame["name"][mask])
    for name in held:
        link_or_copy(src / "train" / name, public / "test" / name)
    answers = pixel_table([src / "train_cleaned" / name for name in held])
    write_csv(answers, private / "answers.csv")
    write_csv(answers.assign(value=1), public / "sampleSubmission.csv")


def pixel_table(paths: list[Path]) -> pd.DataFrame:
    """Pixels as rows: id {image}_{row}_{column} counted from 1, value in [0, 1]."""
    ids: list[str] = []
    values = []
    for path in paths:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("L")) / 255.0
        rows, columns = pixels.shape
        ids += [
            f"{path.stem}_{r}_{c}"
            for r in range(1, rows + 1)
            for c in range(1, columns + 1)
        ]
        values.append(pixels.ravel())
    return pd.DataFrame({"id": ids, "value": np.concatenate(values)})


def carve_birds(short: str, seed: int, src: Path, public: Path, private: Path) -> None:
    """Whole recordings (site and time in the file name); ragged tables, kept as lines.

    The competition's own test recordings leave the view altogether.
    """
    essential = src / "essential_data"
    folds = read_text_table(essential / "CVfolds_2.txt")
    names = read_text_table(essential / "rec_id2filename.txt")
    frame = folds[folds["fold"] == "0"].merge(names, on="rec_id")
    frame["recording"] = [f.rsplit("_", 1)[0] for f in frame["filename"]]
    mask = validation_mask(RULES[short], frame, split_rng(short, seed))
    ids = set(frame["rec_id"])
    held = set(frame["rec_id"][mask])
    folds = frame[["rec_id"]].assign(fold=mask.astype(int))
    write_csv(folds, public / "essential_data" / "CVfolds_2.txt")
    write_csv(
        frame[["rec_id", "filename"]], public / "essential_data" / "rec_id2filename.txt"
    )
    link_or_copy(
        essential / "species_list.txt", public / "essential_data" / "species_list.txt"
    )
    labels = dict(_ragged(essential / "rec_labels_test_hidden.txt"))
    lines = ["rec_id,[labels]"]
    for rec_id in frame["rec_id"]:
        rest = "?" if rec_id in held else labels[rec_id]
        lines.append(f"{rec_id},{rest}" if rest else rec_id)
    _write_lines(public / "essential_data" / "rec_labels_test_hidden.txt", lines)
    for table in sorted((src / "supplemental_data").glob("*.txt")):
        with table.open(encoding="utf-8") as handle:
            kept = [next(handle).rstrip("\n")]
        kept += [f"{i},{rest}" if rest else i for i, rest in _ragged(table) if i in ids]
        _write_lines(public / "supplemental_data" / table.name, kept)
    extra = (src / "supplemental_data").glob("*")
    folders = [essential / "src_wavs", *sorted(p for p in extra if p.is_dir())]
    stems = set(frame["filename"])
    for folder in folders:
        for path in sorted(folder.glob("*.*")):
            if path.stem in stems:
                link_or_copy(path, public / path.relative_to(src))
    rows = []
    for rec_id in frame["rec_id"][mask]:
        heard = {int(s) for s in labels[rec_id].split(",") if s}
        rows += [(int(rec_id) * 100 + s, int(s in heard)) for s in range(NUM_SPECIES)]
    answers = pd.DataFrame(rows, columns=["Id", "Probability"])
    write_csv(answers, private / "answers.csv")
    sample = sample_like(src / "sample_submission.csv", answers, "Id")
    write_csv(sample, public / "sample_submission.csv")


def _ragged(path: Path) -> Iterator[tuple[str, str]]:
    """(first field, rest of the line) of every line after the header."""
    lines = path.read_text("utf-8").splitlines()[1:]
    for line in lines:
        first, _, rest = line.partition(",")
        yield first, rest


def _write_lines(path: Path, lines: list[str]) -> None:
    write_file(path, ("\n".join(lines) + "\n").encode())


SPECIAL = {
    "textnorm-en": carve_textnorm,
    "textnorm-ru": carve_textnorm,
    "pizza": carve_pizza,
    "whale": carve_whale,
    "dogs-vs-cats": carve_dogs_vs_cats,
    "denoising-docs": carve_denoising,
    "mlsp-birds": carve_birds,
}
