"""Nothing under a script's public folder tells the validation labels.

The strong test is non-interference (``rpg_tasks.leaks``): change every hidden field of
the validation rows in the source, carve again with the same rows, and compare every
public byte. The weaker scans hold for the files as they are.
"""

import csv
import functools
import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from synthetic_helpers import SHORTS, shared_cache, small_data

from rpg_tasks import get_task, leaks, prepare_task
from rpg_tasks.building import carve
from rpg_tasks.checks import digests, read_text
from rpg_tasks.kit import TableLayout, csv_bytes, write_zip
from rpg_tasks.taskcode import load_code


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    return lambda short: small_data(cache, short)


def _scramble_textnorm(lang: str, source: Path, mask: np.ndarray) -> None:
    name = f"{lang}_train.csv"
    frame = read_text(source / f"{name}.zip")
    frame.loc[mask, ["class", "after"]] = "changed"
    frame = frame.astype({"sentence_id": int, "token_id": int})
    data = csv_bytes(frame, quoting=csv.QUOTE_NONNUMERIC)
    write_zip(source / f"{name}.zip", [(name, data)])


def _scramble_pizza(source: Path, mask: np.ndarray) -> None:
    records = json.loads((source / "train.json").read_text())
    fields = set(json.loads((source / "test.json").read_text())[0])
    for record, held in zip(records, mask, strict=True):
        if held:
            record["requester_received_pizza"] ^= True
            record["giver_username_if_known"] = "a generous soul"
            for name in set(record) - fields - {"requester_received_pizza"}:
                record[name] = "changed"
    (source / "train.json").unlink()
    (source / "train.json").write_text(json.dumps(records, indent=4))


def _scramble_whale(source: Path, mask: np.ndarray) -> None:
    with zipfile.ZipFile(source / "train2.zip") as archive:
        files = {n: archive.read(n) for n in sorted(archive.namelist())}
    renamed = []
    for (name, data), held in zip(files.items(), mask, strict=True):
        if held:
            flipped = "_0.aif" if name.endswith("_1.aif") else "_1.aif"
            name = re.sub(r"_[01]\.aif$", flipped, name)
        renamed.append((name, data))
    write_zip(source / "train2.zip", renamed)


def _scramble_birds(source: Path, mask: np.ndarray) -> None:
    essential = source / "essential_data"
    folds = read_text(essential / "CVfolds_2.txt")
    held = set(folds["rec_id"][folds["fold"] == "0"][mask])
    path = essential / "rec_labels_test_hidden.txt"
    lines = path.read_text().splitlines()
    changed = [f"{i},3,5" if (i := x.split(",")[0]) in held else x for x in lines]
    path.unlink()
    path.write_text("\n".join(changed) + "\n")


def _scramble_pages(source: Path, mask: np.ndarray) -> None:
    clean = sorted((source / "train_cleaned").glob("*.png"))
    for path, held in zip(clean, mask, strict=True):
        if held:
            with Image.open(path) as image:
                size = image.size
            path.unlink()
            Image.new("L", size, 7).save(path)


# For tasks whose carver is a function; tables are scrambled by their layout.
_SCRAMBLE = {
    "textnorm-en": functools.partial(_scramble_textnorm, "en"),
    "textnorm-ru": functools.partial(_scramble_textnorm, "ru"),
    "pizza": _scramble_pizza,
    "whale": _scramble_whale,
    "mlsp-birds": _scramble_birds,
    "denoising-docs": _scramble_pages,
}
# Labels are in the names of pictures: a test of its own below.
_IN_NAMES = "dogs-vs-cats"

#: One of each kind of layout; the rest are slow.
_QUICK = (
    *("textnorm-en", "pizza", "whale", "mlsp-birds", "denoising-docs"),
    *("spooky-author", "nyc-taxi", "aerial-cactus", "siim-isic"),
)


def test_every_carver_is_a_layout_or_has_a_scramble():
    special = {
        short
        for short in SHORTS
        if not isinstance(load_code(get_task(short)).carve, TableLayout)
    }
    assert special == {*_SCRAMBLE, _IN_NAMES}


@pytest.mark.parametrize(
    "short",
    [
        pytest.param(short, marks=() if short in _QUICK else pytest.mark.slow)
        for short in SHORTS
        if short != _IN_NAMES
    ],
)
def test_public_bytes_do_not_depend_on_hidden_fields(prepared, short, tmp_path):
    wrong = leaks.telling_bytes(prepared(short), tmp_path, _SCRAMBLE.get(short))
    assert wrong == []


def test_dogs_vs_cats_pictures_carry_numbers_only(prepared):
    public = prepared("dogs-vs-cats").public
    held = list((public / "test").iterdir())
    assert held
    assert all(re.fullmatch(r"\d+\.jpg", p.name) for p in held)
    # A second link to the training file would give the old name away.
    assert all(p.stat().st_nlink == 1 for p in held)
    assert len({p.stat().st_size for p in held}) > 1
    seen = {d for n, d in digests(public).items() if n.startswith("train/")}
    assert not seen & {d for n, d in digests(public).items() if n.startswith("test/")}


@pytest.mark.parametrize("short", SHORTS)
def test_no_table_shows_hidden_targets_and_samples_tell_nothing(prepared, short):
    data = prepared(short)
    assert leaks.shown_targets(data) == []
    assert leaks.telling_sample(data) == []


def test_samples_of_text_normalisation_copy_the_written_form(prepared):
    for lang in ("en", "ru"):
        data = prepared(f"textnorm-{lang}")
        test = read_text(data.public / f"{lang}_test_2.csv.zip")
        assert list(read_text(data.sample)["after"]) == list(test["before"])


def test_telltale_by_files_of_real_data_leave_both_views(prepared, tmp_path):
    synthetic = prepared("siim-isic")
    real = tmp_path / "data" / synthetic.task.competition_id / "prepared"
    shutil.copytree(synthetic.test_public.parent, real)
    (real / "public" / "tfrecords").mkdir()
    (real / "public" / "tfrecords" / "test00-2071.tfrec").write_bytes(b"target")
    data = prepare_task(
        "siim-isic", data="mlebench", data_dir=real.parents[1], cache_dir=tmp_path
    )
    for public in (data.public, data.test_public):
        assert (public / "train.csv").is_file()
        assert not list(public.rglob("*.tfrec"))
    assert len(digests(data.test_public)) == len(digests(synthetic.test_public))


def test_the_scan_sees_a_planted_label(prepared, tmp_path):
    """Positive control: a by-file with labels is not carried over."""
    source = tmp_path / "source"
    shutil.copytree(prepared("spooky-author").test_public, source)
    shutil.copyfile(source / "train.csv", source / "train_backup.csv")
    carve("spooky-author", 0, source, tmp_path / "public", tmp_path / "private")
    names = {p.name for p in (tmp_path / "public").rglob("*")}
    assert names == {"train.csv", "test.csv", "sample_submission.csv"}
