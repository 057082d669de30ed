"""How validation rows are drawn, and that groups and time are kept apart."""

import io
import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_helpers import SHORTS, shared_cache, small_data

from rpg_tasks import checks, get_task
from rpg_tasks.building import carve
from rpg_tasks.checks import digests, read_text
from rpg_tasks.kit.splits import (
    SplitRule,
    split_rng,
    stratified_choice,
    validation_mask,
    validation_size,
)
from rpg_tasks.taskcode import load_code


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    return lambda short: small_data(cache, short)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    share=st.floats(0.05, 0.5),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_stratified_choice_keeps_shares_and_every_class(sizes, share, seed):
    strata = pd.Series(np.repeat(np.arange(len(sizes)), sizes))
    room = sum(s - 1 for s in sizes)
    n = min(round(share * len(strata)), room)
    rng = np.random.default_rng(seed)
    mask = stratified_choice(rng, strata, n)
    assert mask.sum() == n
    taken = np.bincount(strata[mask], minlength=len(sizes))
    splittable = np.array(sizes) > 1
    assert (taken[~splittable] == 0).all()
    assert (taken <= np.maximum(np.array(sizes) - 1, 0)).all()
    if n >= splittable.sum():
        assert (taken[splittable] >= 1).all()


def test_stratified_choice_is_proportional_on_large_strata():
    strata = pd.Series(np.repeat(["a", "b", "c"], [700, 200, 100]))
    mask = stratified_choice(np.random.default_rng(0), strata, 100)
    counts = strata[mask].value_counts()
    assert dict(counts) == {"a": 70, "b": 20, "c": 10}


def test_stratified_choice_is_uniform_within_a_stratum():
    strata = pd.Series(np.repeat([0, 1], [30, 10]))
    rng = np.random.default_rng(1)
    hits = sum(stratified_choice(rng, strata, 8).astype(int) for _ in range(4000))
    # Six of 30 and two of 10: each row is drawn with probability 0.2.
    spread = np.sqrt(4000 * 0.2 * 0.8)
    assert np.abs(hits - 800).max() < 5.5 * spread


def test_stratified_choice_refuses_too_many():
    with pytest.raises(ValueError, match="cannot draw 3 of 3"):
        stratified_choice(np.random.default_rng(0), pd.Series([1, 1, 2]), 3)


@pytest.mark.parametrize(
    ("rows", "size"),
    [(3, 1), (12, 3), (900, 225), (2000, 300), (17621, 1762), (9_000_000, 20_000)],
)
def test_validation_size(rows, size):
    assert validation_size(rows) == size


@given(
    groups=st.lists(st.integers(0, 30), min_size=40, max_size=200),
    seed=st.integers(0, 1000),
)
@settings(max_examples=50, deadline=None)
def test_groups_stay_whole(groups, seed):
    frame = pd.DataFrame({"g": groups, "y": [g % 2 for g in groups]})
    if frame["g"].nunique() < 8:
        return
    for rule in (SplitRule(group="g"), SplitRule(group="g", last=True)):
        mask = validation_mask(rule, frame, np.random.default_rng(seed))
        held, kept = set(frame["g"][mask]), set(frame["g"][~mask])
        assert not held & kept
        assert held
        assert kept
    assert held == {max(groups)}


def test_repeated_ids_stay_in_training():
    ids = [*"aabbcc", *(f"id{k}" for k in range(40))]
    frame = pd.DataFrame({"g": ids, "y": [k % 2 for k in range(len(ids))]})
    rule = SplitRule(group="g", stratify=("y",), single=True)
    for seed in range(20):
        mask = validation_mask(rule, frame, np.random.default_rng(seed))
        assert mask.sum() == 10
        assert not set(frame["g"][mask]) & set("abc")


def test_rules_that_matter():
    rules = {short: load_code(get_task(short)).split for short in SHORTS}
    assert rules["whale"].last
    assert rules["siim-isic"].group == "patient_id"
    assert rules["spooky-author"].stratify
    assert rules["nyc-taxi"] == SplitRule()


@pytest.mark.parametrize("short", SHORTS)
def test_carving_is_deterministic_and_moves_with_the_seed(prepared, short, tmp_path):
    data = prepared(short)
    assert checks.unstable_view(data, tmp_path / "same") == []
    if short == "whale":  # the last day is the last day
        return
    other = tmp_path / "other"
    carve(short, 1, data.test_public, other / "public", other / "private")
    assert digests(other) != digests(data.public.parent)
    assert not np.array_equal(
        split_rng(short, 0).random(3), split_rng(short, 1).random(3)
    )


def _rows(data, name, **kwargs):
    return read_text(data.public / name), read_text(data.test_public / name)


@pytest.mark.parametrize(
    ("short", "column"), [("ranzcr-clip", "PatientID"), ("siim-isic", "patient_id")]
)
def test_patients_are_on_one_side(prepared, short, column):
    data = prepared(short)
    kept, everything = _rows(data, "train.csv")
    gone = everything[~everything[data.task.id_column].isin(kept[data.task.id_column])]
    assert len(gone) == len(read_text(data.answers))
    assert not set(gone[column]) & set(kept[column])
    test = read_text(data.test_answers)
    if column in test:
        assert not set(test[column]) & set(everything[column])


def test_requesters_are_on_one_side(prepared):
    data = prepared("pizza")
    train, test = (
        json.loads((data.public / f"{part}.json").read_text())
        for part in ("train", "test")
    )
    people = [{r["requester_username"] for r in rows} for rows in (train, test)]
    assert not people[0] & people[1]


def test_sentences_are_whole_and_renumbered(prepared):
    for lang in ("en", "ru"):
        data = prepared(f"textnorm-{lang}")
        train = read_text(data.public / f"{lang}_train.csv.zip")
        test = read_text(data.public / f"{lang}_test_2.csv.zip")
        whole = read_text(data.test_public / f"{lang}_train.csv.zip")
        assert len(train) + len(test) == len(whole)
        for part in (train, test):
            numbers = part["sentence_id"].astype(int)
            assert set(numbers) == set(range(numbers.max() + 1))
            starts = part.groupby("sentence_id")["token_id"].first()
            assert (starts == "0").all()


def test_validation_days_of_whale_are_later(prepared):
    data = prepared("whale")
    days = []
    for name in ("train2.zip", "test2.zip"):
        with zipfile.ZipFile(data.public / name) as archive:
            days.append({m.split("/")[1][:8] for m in archive.namelist()})
    assert max(days[0]) < min(days[1])


def test_recordings_of_birds_are_on_one_side(prepared):
    essential = prepared("mlsp-birds").public / "essential_data"
    folds = pd.read_csv(essential / "CVfolds_2.txt")
    names = pd.read_csv(essential / "rec_id2filename.txt")
    both = folds.merge(names, on="rec_id")
    recording = both["filename"].str.rsplit("_", n=1).str[0]
    sides = both.groupby(recording)["fold"].nunique()
    assert sides.eq(1).all()
    wavs = {p.stem for p in (essential / "src_wavs").iterdir()}
    assert wavs == set(names["filename"])


def test_every_species_and_breed_keeps_training_rows(prepared):
    for short, name, column in (
        ("leaf-classif", "train.csv", "species"),
        ("dog-breed", "labels.csv", "breed"),
    ):
        kept, everything = _rows(prepared(short), name)
        assert set(kept[column]) == set(everything[column])


def test_dogs_and_cats_numbers_say_nothing_about_the_label(prepared):
    data = prepared("dogs-vs-cats")
    label = pd.read_csv(data.answers)["label"].to_numpy()
    place = np.arange(label.size) - (label.size - 1) / 2
    spread = place.std() * label.std() * np.sqrt(label.size)
    assert abs(place @ (label - label.mean())) < 5 * spread


def test_real_archives_with_folders_inside_are_carved(tmp_path, prepared):
    source = prepared("aerial-cactus").test_public
    public = tmp_path / "in"
    public.mkdir()
    for name in ("train.csv", "sample_submission.csv"):
        (public / name).write_bytes((source / name).read_bytes())
    for part in ("train", "test"):
        with (
            zipfile.ZipFile(source / f"{part}.zip") as old,
            zipfile.ZipFile(public / f"{part}.zip", "w") as new,
        ):
            new.writestr(f"{part}/", b"")
            for member in old.namelist():
                new.writestr(f"{part}/{member}", old.read(member))
    carve("aerial-cactus", 0, public, tmp_path / "out", tmp_path / "private")
    data = (tmp_path / "out" / "test.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
    ids = pd.read_csv(tmp_path / "out" / "sample_submission.csv")["id"]
    assert sorted(names) == sorted(f"test/{i}" for i in ids)
