"""Nothing under a script's public folder tells the validation labels.

The strong test is non-interference: change every hidden field of the validation rows in
the source, carve again with the same rows, and compare every public byte, archives
included. The weaker scans hold for the files as they are.
"""

import csv
import io
import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from synthetic_helpers import SHORTS, digests, read_text, shared_cache, walk

from rpg_tasks import carve as carve_module
from rpg_tasks import carve_special, prepare_task
from rpg_tasks.archives import read_file
from rpg_tasks.carve import LAYOUTS, carve
from rpg_tasks.synthetic.common import csv_bytes, write_zip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    return lambda short: prepare_task(short, cache_dir=cache)


def _other(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The masked values, each replaced by another of the column, if there is one."""
    out = values.copy()
    kinds = sorted(set(values.tolist()))
    step = dict(zip(kinds, [*kinds[1:], kinds[0]], strict=True))
    out[mask] = [step[v] for v in values[mask].tolist()]
    return out


def _scramble_table(short: str, source: Path, mask: np.ndarray) -> None:
    layout = LAYOUTS[short]
    frame = read_text(source / layout.train)
    shown = {layout.id}
    if layout.test is not None:
        shown |= set(read_text(source / layout.test).columns)
    for column in frame.columns.difference(shown):
        frame[column] = _other(frame[column].to_numpy(dtype=object), mask)
    (source / layout.train).unlink()
    frame.to_csv(source / layout.train, index=False)
    for name in layout.by_id:
        lines = read_text(source / name)
        held = lines[layout.id].isin(frame[layout.id][mask])
        lines.loc[held, [c for c in lines if c != layout.id]] = "changed"
        (source / name).unlink()
        lines.to_csv(source / name, index=False)


def _scramble_textnorm(short: str, source: Path, mask: np.ndarray) -> None:
    name = f"{short[-2:]}_train.csv"
    frame = read_text(source / f"{name}.zip")
    frame.loc[mask, ["class", "after"]] = "changed"
    frame = frame.astype({"sentence_id": int, "token_id": int})
    data = csv_bytes(frame, quoting=csv.QUOTE_NONNUMERIC)
    write_zip(source / f"{name}.zip", [(name, data)])


def _scramble_pizza(short: str, source: Path, mask: np.ndarray) -> None:
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


def _scramble_whale(short: str, source: Path, mask: np.ndarray) -> None:
    with zipfile.ZipFile(source / "train2.zip") as archive:
        files = {n: archive.read(n) for n in sorted(archive.namelist())}
    renamed = []
    for (name, data), held in zip(files.items(), mask, strict=True):
        if held:
            flipped = "_0.aif" if name.endswith("_1.aif") else "_1.aif"
            name = re.sub(r"_[01]\.aif$", flipped, name)
        renamed.append((name, data))
    write_zip(source / "train2.zip", renamed)


def _scramble_birds(short: str, source: Path, mask: np.ndarray) -> None:
    essential = source / "essential_data"
    folds = read_text(essential / "CVfolds_2.txt")
    held = set(folds["rec_id"][folds["fold"] == "0"][mask])
    path = essential / "rec_labels_test_hidden.txt"
    lines = path.read_text().splitlines()
    changed = [f"{i},3,5" if (i := x.split(",")[0]) in held else x for x in lines]
    path.unlink()
    path.write_text("\n".join(changed) + "\n")


def _scramble_pages(short: str, source: Path, mask: np.ndarray) -> None:
    clean = sorted((source / "train_cleaned").glob("*.png"))
    for path, held in zip(clean, mask, strict=True):
        if held:
            with Image.open(path) as image:
                size = image.size
            path.unlink()
            Image.new("L", size, 7).save(path)


_SCRAMBLE = dict.fromkeys(LAYOUTS, _scramble_table) | {
    "textnorm-en": _scramble_textnorm,
    "textnorm-ru": _scramble_textnorm,
    "pizza": _scramble_pizza,
    "whale": _scramble_whale,
    "mlsp-birds": _scramble_birds,
    "denoising-docs": _scramble_pages,
}


#: One of each kind of layout; the rest are slow.
_QUICK = (
    *("textnorm-en", "pizza", "whale", "mlsp-birds", "denoising-docs"),
    *("spooky-author", "nyc-taxi", "aerial-cactus", "siim-isic"),
)


@pytest.mark.parametrize(
    "short",
    [
        pytest.param(short, marks=() if short in _QUICK else pytest.mark.slow)
        for short in sorted(_SCRAMBLE)
    ],
)
def test_public_bytes_do_not_depend_on_hidden_fields(
    prepared, short, tmp_path, monkeypatch
):
    source = tmp_path / "source"
    shutil.copytree(prepared(short).test_public, source)
    masks, states = [], []
    draw = carve_module.validation_mask

    def remember(rule, frame, rng):
        masks.append(draw(rule, frame, rng))
        states.append(rng.bit_generator.state)
        return masks[-1]

    def repeat(rule, frame, rng):
        rng.bit_generator.state = states[0]
        return masks[0]

    for module in (carve_module, carve_special):
        monkeypatch.setattr(module, "validation_mask", remember)
    carve(short, 0, source, tmp_path / "public", tmp_path / "private")
    before = digests(tmp_path / "public")
    answers = digests(tmp_path / "private")
    for folder in ("public", "private"):
        shutil.rmtree(tmp_path / folder)
    for module in (carve_module, carve_special):
        monkeypatch.setattr(module, "validation_mask", repeat)
    _SCRAMBLE[short](short, source, np.asarray(masks[0]))
    carve(short, 0, source, tmp_path / "public", tmp_path / "private")
    assert digests(tmp_path / "private") != answers, "the scramble changed nothing"
    after = digests(tmp_path / "public")
    changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
    assert not changed


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
@pytest.mark.parametrize("part", ["validation", "test"])
def test_tables_show_hidden_rows_without_their_targets(prepared, short, part):
    data = prepared(short)
    public = data.public if part == "validation" else data.test_public
    answers = read_text(data.answers if part == "validation" else data.test_answers)
    ids = set(answers[data.task.id_column])
    targets = set(data.task.targets) or set(answers.columns) - {data.task.id_column}
    sample = Path(data.task.sample_file).name
    for name, blob in walk(public):
        inner = name.split("!")[-1]
        if not inner.endswith((".csv", ".txt", ".json")):
            continue
        if name.split("!")[0].endswith(sample):
            continue
        text = blob.decode("utf-8")
        if inner.endswith(".json"):
            table = pd.DataFrame(json.loads(text)).astype(str)
        else:
            table = (
                pd.read_csv(
                    io.StringIO(text), dtype=str, keep_default_na=False, names=None
                )
                if "," in text.splitlines()[0] and not inner.endswith(".txt")
                else None
            )
        if table is None or data.task.id_column not in table:
            continue
        shared = table[data.task.id_column].isin(ids)
        if data.task.short == "nomad2018" and "train" in inner:
            continue  # ids count from 1 on both sides, by the competition's design
        if shared.any():
            assert not targets & set(table.columns), (name, targets)


@pytest.mark.parametrize("short", SHORTS)
def test_sample_submission_is_constant_or_a_copy(prepared, short):
    data = prepared(short)
    sample = pd.read_csv(
        io.BytesIO(read_file(data.sample)), keep_default_na=False, dtype=str
    )
    if short.startswith("textnorm"):
        test = read_text(data.public / f"{short[-2:]}_test_2.csv.zip")
        assert list(sample["after"]) == list(test["before"])
        return
    columns = [c for c in sample if c not in (data.task.id_column, "Date", "Comment")]
    assert columns
    assert sample[columns].drop_duplicates().shape[0] == 1


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
