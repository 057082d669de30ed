"""The generated files are those of the competitions, and the graders accept them."""

import io
import json
import struct
import wave
import zipfile

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from synthetic_helpers import SHORTS, shared_cache, small_data

from rpg_tasks import checks, get_task
from rpg_tasks.archives import read_file
from rpg_tasks.checks import read_text
from rpg_tasks.taskcode import load_code


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    return lambda short: small_data(cache, short)


@pytest.mark.parametrize("short", SHORTS)
def test_files_ids_and_gains_are_as_the_record_says(prepared, short):
    data = prepared(short)
    assert checks.wrong_files(data) == []
    assert checks.wrong_ids(data) == []
    assert checks.wrong_gains(data) == []


def test_the_small_tasks_stay_small(prepared):
    roots = [prepared(short).public.parents[1] for short in SHORTS]
    sizes = [p.stat().st_size for root in roots for p in root.rglob("*") if p.is_file()]
    assert sum(sizes) < 300e6


@pytest.mark.parametrize("short", ["spooky-author", "aerial-cactus", "pizza"])
def test_equal_seeds_give_equal_bytes_and_other_seeds_do_not(prepared, short, tmp_path):
    assert checks.unstable_data(prepared(short), tmp_path) == []


@pytest.mark.parametrize("short", SHORTS)
def test_every_task_says_how_large_it_is_and_what_is_smaller(short):
    synthetic = load_code(get_task(short)).synthetic
    for size in ("small", "medium"):
        train, test = synthetic.rows(size)
        assert str(train) in synthetic.describe(size)
        assert 0 < test < train
    if short == "aptos2019":
        assert "64x64" in synthetic.describe("small")


def test_textnorm_keeps_quotes_and_odd_tokens(prepared):
    for short, lang in (("textnorm-en", "en"), ("textnorm-ru", "ru")):
        public = prepared(short).test_public
        raw = read_file(public / f"{lang}_train.csv.zip").decode()
        header = raw.splitlines()[0]
        assert header == '"sentence_id","token_id","class","before","after"'
        assert raw.splitlines()[1].startswith('0,0,"')
        train = read_text(public / f"{lang}_train.csv.zip")
        assert {"NA", "null", '"'} <= set(train["before"])
        assert (train["before"] == train["after"]).mean() == pytest.approx(
            0.9, abs=0.03
        )
    table = dict(zip(train["before"], train["after"], strict=True))
    assert table["2005 года"] == "две тысячи пятого года"
    assert any(a.endswith("_trans") for a in train["after"])


def test_english_spoken_forms_follow_the_competition(prepared):
    train = read_text(prepared("textnorm-en").test_public / "en_train.csv.zip")
    after = train["after"][train["class"] != "PUNCT"]
    assert not after.str.contains(r"[-,]").any()
    cardinal = train[train["class"] == "CARDINAL"]
    assert not cardinal["after"].str.contains(" and ").any()
    years = train[train["before"].str.fullmatch("19[0-9]{2}")]
    kinds = years.groupby("class")["after"].first()
    assert kinds["DATE"].startswith("nineteen ")
    assert kinds["CARDINAL"].startswith("one thousand nine hundred")


def test_singleton_class_of_tabular_2021_stays_in_training(prepared):
    data = prepared("tabular-2021")
    train = pd.read_csv(data.test_public / "train.csv")
    assert train.shape[1] == 56
    assert (train["Cover_Type"] == 5).sum() == 1
    assert (pd.read_csv(data.public / "train.csv")["Cover_Type"] == 5).sum() == 1
    assert train.filter(like="Soil_Type").sum(axis=1).eq(1).all()
    assert train.dtypes.eq("int64").all()


def test_tabular_2022_columns_and_ids(prepared):
    public = prepared("tabular-2022").test_public
    train, test = pd.read_csv(public / "train.csv"), pd.read_csv(public / "test.csv")
    assert list(train.columns) == ["id", *(f"f_{k:02d}" for k in range(31)), "target"]
    assert train["f_27"].str.fullmatch("[A-T]{10}").all()
    whole = [c for c in train if train[c].dtype == "int64"]
    expected = [f"f_{k:02d}" for k in (*range(7, 19), 29, 30)]
    assert whole == ["id", *expected, "target"]
    assert list(test["id"]) == list(range(len(train), len(train) + len(test)))


def test_pizza_has_the_real_fields_and_no_giver(prepared):
    data = prepared("pizza")
    for public in (data.public, data.test_public):
        train = json.loads((public / "train.json").read_text())
        test = json.loads((public / "test.json").read_text())
        assert {len(r) for r in train} == {32}
        assert {len(r) for r in test} == {17}
        assert all(type(r["requester_received_pizza"]) is bool for r in train)
        assert {r["giver_username_if_known"] for r in test} == {"N/A"}
        with zipfile.ZipFile(public / "train.zip") as archive:
            assert json.loads(archive.read("train.json")) == train


def test_insults_keep_quotes_and_escapes(prepared):
    data = prepared("insults")
    train = read_text(data.test_public / "train.csv")
    assert list(train.columns) == ["Insult", "Date", "Comment"]
    assert train["Comment"].str.fullmatch(r'(?s)".*"').all()
    assert train["Comment"].str.contains(r"\\xa0").any()
    assert (train["Date"] == "").any()
    assert train["Date"][train["Date"] != ""].str.fullmatch(r"\d{14}Z").all()
    assert list(read_text(data.answers).columns) == [
        "Insult",
        "Date",
        "Comment",
        "Usage",
    ]


def test_jigsaw_marks_unscored_rows_and_keeps_both_classes(prepared):
    answers = pd.read_csv(prepared("jigsaw-toxic").test_answers).set_index("id")
    unscored = (answers == -1).all(axis=1)
    assert unscored.mean() == pytest.approx(0.4, abs=0.01)
    scored = answers[~unscored]
    assert (scored.sum() >= 5).all()
    assert (scored["severe_toxic"] <= scored["toxic"]).all()


def test_whale_clips_are_aiff_with_labels_in_training_names(prepared):
    public = prepared("whale").test_public
    with zipfile.ZipFile(public / "train2.zip") as archive:
        names = archive.namelist()
        data = archive.read(names[0])
    assert all(
        n.startswith("train2/") and n.endswith(("_0.aif", "_1.aif")) for n in names
    )
    assert data[:4] == b"FORM"
    assert data[8:12] == b"AIFF"
    size = struct.unpack(">I", data[4:8])[0]
    assert size + 8 == len(data)
    comm = data.index(b"COMM") + 8
    channels, frames, bits = struct.unpack(">hIh", data[comm : comm + 8])
    exponent, mantissa = struct.unpack(">HQ", data[comm + 8 : comm + 18])
    rate = mantissa * 2.0 ** (exponent - 16383 - 63)
    assert (channels, bits, rate) == (1, 16, 2000.0)
    sound = data.index(b"SSND") + 16
    assert len(data) - sound == 2 * frames
    with zipfile.ZipFile(public / "test2.zip") as archive:
        assert all("_Test" in n for n in archive.namelist())


def test_bird_labels_are_ragged_and_clips_are_wav(prepared):
    public = prepared("mlsp-birds").test_public
    essential = public / "essential_data"
    lines = (essential / "rec_labels_test_hidden.txt").read_text().splitlines()
    assert lines[0] == "rec_id,[labels]"
    assert any("," not in line for line in lines[1:])
    assert any(line.count(",") > 1 for line in lines[1:])
    assert sum(line.endswith(",?") for line in lines) == 64
    names = pd.read_csv(essential / "rec_id2filename.txt")
    with wave.open(str(essential / "src_wavs" / f"{names['filename'][0]}.wav")) as clip:
        assert (clip.getnchannels(), clip.getsampwidth()) == (1, 2)
        assert clip.getframerate() == 8000


def test_images_have_the_stated_kinds_and_sizes(prepared):
    cases = {
        "ranzcr-clip": ("train/*.jpg", "JPEG", "L", (64, 64)),
        "aptos2019": ("train_images/*.png", "PNG", "RGB", (64, 64)),
        "siim-isic": ("jpeg/train/*.jpg", "JPEG", "RGB", (32, 32)),
        "histopathologic": ("train/*.tif", "TIFF", "RGB", (48, 48)),
        "plant-pathology": ("images/Train_*.jpg", "JPEG", "RGB", (64, 48)),
        "dog-breed": ("train/*.jpg", "JPEG", "RGB", (48, 48)),
        "dogs-vs-cats": ("train/cat.*.jpg", "JPEG", "RGB", (48, 48)),
        "denoising-docs": ("train_cleaned/*.png", "PNG", "L", (120, 60)),
    }
    for short, (pattern, kind, mode, size) in cases.items():
        path = next(prepared(short).public.glob(pattern))
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == (kind, mode, size), short
    with zipfile.ZipFile(prepared("aerial-cactus").public / "train.zip") as archive:
        picture = Image.open(io.BytesIO(archive.read(archive.namelist()[0])))
        assert (picture.format, picture.size) == ("JPEG", (32, 32))


def test_denoising_answers_are_the_clean_pixels(prepared):
    data = prepared("denoising-docs")
    answers = pd.read_csv(data.answers)
    stem = answers["id"].iloc[0].split("_")[0]
    page = answers[answers["id"].str.startswith(f"{stem}_")]
    assert list(page["id"].iloc[:2]) == [f"{stem}_1_1", f"{stem}_1_2"]
    source = data.test_public / "train_cleaned" / f"{stem}.png"
    with Image.open(source) as image:
        pixels = np.asarray(image) / 255.0
    np.testing.assert_array_equal(page["value"], pixels.ravel())


def test_geometry_files_match_their_rows(prepared):
    public = prepared("nomad2018").public
    test = pd.read_csv(public / "test.csv")
    assert list(test["id"]) == list(range(1, len(test) + 1))
    for i, atoms, edge in test[
        ["id", "number_of_total_atoms", "lattice_vector_1_ang"]
    ].itertuples(index=False):
        lines = (public / "test" / str(i) / "geometry.xyz").read_text().splitlines()
        assert sum(line.startswith("atom ") for line in lines) == atoms
        vector = next(line for line in lines if line.startswith("lattice_vector"))
        assert float(vector.split()[1]) == pytest.approx(edge, abs=1e-3)


def test_taxi_training_file_has_broken_rows(prepared):
    train = pd.read_csv(prepared("nyc-taxi").public / "labels.csv")
    assert (train["pickup_longitude"] == 0).mean() == pytest.approx(0.01, abs=0.004)
    assert (train["fare_amount"] < 0).any()
    assert train["key"].is_unique
