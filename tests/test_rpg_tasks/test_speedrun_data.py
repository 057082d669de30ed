"""A speedrun's record and data: found, checked, refused when damaged."""

import lzma

import numpy as np
import pytest
import speedrun_help as helper

from rpg_tasks import TaskError
from rpg_tasks.goals import get_goal
from rpg_tasks.speedrun.data import (
    TEXT,
    check_data,
    decode,
    encode,
    prepare_speedrun,
    split_text,
)
from rpg_tasks.speedrun.record import RECORD, get_speedrun, read_speedrun
from rpg_tasks.speedrun.tokens import read_tokens, rows_of, token_bytes

SPEEDRUN = helper.SPEEDRUN


def test_it_is_found_beside_the_tasks():
    assert get_goal("tiny-gpt") is SPEEDRUN
    assert get_goal("spooky-author").short == "spooky-author"
    assert not SPEEDRUN.higher_is_better
    with pytest.raises(TaskError, match="tiny-gpt"):
        get_speedrun("modded")


def test_the_text(tmp_path):
    data = prepare_speedrun(SPEEDRUN, cache_dir=tmp_path)
    for name, part in SPEEDRUN.parts.items():
        path = data.train if name == "train" else data.rows(name)
        tokens = read_tokens(path, vocabulary=96)
        assert len(tokens) == part.tokens
    assert sorted(p.name for p in data.inputs.iterdir()) == ["train.bin"]
    assert (SPEEDRUN.folder / TEXT).stat().st_size < 540_000
    again = prepare_speedrun(SPEEDRUN, cache_dir=tmp_path)
    assert again == data
    titles = {"val": "MEASURE FOR MEASURE", "final": "THE TWO GENTLEMEN OF VERONA"}
    text = split_text(SPEEDRUN)
    for part, title in titles.items():
        assert text[part].startswith(title.encode())
        assert title.encode() not in text["train"]


def test_symbols_go_both_ways():
    text = "".join(map(chr, range(32, 127))) + "\n"
    tokens = encode(text.encode())
    assert sorted(tokens) == list(range(96))
    assert decode(tokens) == text
    with pytest.raises(TaskError, match="no symbols"):
        encode(b"\x00")


def test_rows_share_no_token():
    rows = rows_of(np.arange(14, dtype=np.uint16), 4)
    assert rows.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b[:-2], "truncated"),
        (lambda b: b + b"\0\0", "truncated or damaged"),
        (lambda b: b[:500], "inside its header"),
        (lambda b: b"\0" * len(b), "no token file"),
        (lambda b: b[:-2] + b"\xff\xff", "not below 96"),
    ],
)
def test_a_damaged_shard_is_refused(tmp_path, change, words):
    path = tmp_path / "fineweb_train_000001.bin"
    path.write_bytes(change(token_bytes(np.arange(90))))
    with pytest.raises(TaskError, match=words):
        read_tokens(path, vocabulary=96)


def test_other_tokens_are_noticed(tmp_path):
    data = prepare_speedrun(SPEEDRUN, cache_dir=tmp_path)
    tokens = read_tokens(data.train).copy()
    tokens[7] = (tokens[7] + 1) % 96
    data.train.chmod(0o644)
    data.train.write_bytes(token_bytes(tokens))
    with pytest.raises(TaskError, match="is damaged"):
        check_data(SPEEDRUN, data)


def test_another_text_is_refused(tmp_path):
    text = bytearray(lzma.decompress((SPEEDRUN.folder / TEXT).read_bytes()))
    text[100] ^= 1
    path = tmp_path / TEXT
    path.write_bytes(lzma.compress(bytes(text), preset=0))
    with pytest.raises(TaskError, match="SHA-256"):
        split_text(SPEEDRUN, path)
    path.write_bytes(b"no archive")
    with pytest.raises(TaskError, match="cannot be read"):
        split_text(SPEEDRUN, path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("target = 2.30", "", "target"),
        ("target = 2.30", 'target = "low"', "must be float"),
        ("length = 64", "length = 64\nrows = 3", "rows"),
        ("[parts.final]", "[parts.last]", "final"),
    ],
)
def test_a_wrong_record_names_the_key(tmp_path, old, new, words):
    text = (SPEEDRUN.folder / RECORD).read_text()
    (tmp_path / RECORD).write_text(text.replace(old, new))
    with pytest.raises(TaskError, match=words):
        read_speedrun(tmp_path)
