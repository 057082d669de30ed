"""Submissions as hostile files: nothing is followed, awaited, or read without end."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from rpg_tasks import grade
from rpg_tasks.grading import Grader
from rpg_tasks.submission import (
    MIN_LIMIT_BYTES,
    InvalidSubmission,
    parse_csv,
    read_regular_file,
    size_limit,
)

ANSWERS = "id,has_cactus\na.jpg,1\nb.jpg,0\nc.jpg,1\n"
TASK = "aerial-cactus"


@pytest.fixture
def answers(tmp_path) -> Path:
    path = tmp_path / "answers.csv"
    path.write_text(ANSWERS)
    return path


def refused(path, answers, words):
    result = grade(TASK, path, answers)
    assert not result.valid
    assert result.score is None
    assert result.gain == 0.0
    assert words in result.reason
    assert "\n" not in result.reason


def test_a_plain_file_is_graded(tmp_path, answers):
    path = tmp_path / "submission.csv"
    path.write_text(ANSWERS)
    result = grade(TASK, path, answers)
    assert (result.valid, result.score, result.gain, result.medal) == (
        True,
        1.0,
        1.0,
        "gold",
    )
    assert result.baseline == 0.5
    assert result.above_median


def test_bytes_that_were_already_collected(answers):
    grader = Grader(TASK, answers)
    assert grader.grade_bytes(ANSWERS.encode()).score == 1.0
    refused = grader.grade_bytes(b"x" * (MIN_LIMIT_BYTES + 1))
    assert refused.reason == "submission.csv is larger than 16 MiB"
    assert refused.status == "invalid"
    assert grader.grade_bytes(b"", "out.csv").reason.startswith("out.csv is not a CSV")


def test_missing_empty_and_folder(tmp_path, answers):
    refused(tmp_path / "none.csv", answers, "there is no file none.csv")
    refused(tmp_path, answers, "not a regular file")
    empty = tmp_path / "submission.csv"
    empty.write_bytes(b"")
    refused(empty, answers, "not a CSV table")
    refused(f"{tmp_path}/a\0b", answers, "cannot be opened")
    refused(tmp_path / ("x" * 300), answers, "cannot be opened")


def test_links_are_not_followed(tmp_path, answers):
    link = tmp_path / "submission.csv"
    link.symlink_to(answers)
    refused(link, answers, "symbolic link")
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    refused(link, answers, "symbolic link")


def test_a_pipe_does_not_block(tmp_path, answers):
    fifo = tmp_path / "submission.csv"
    os.mkfifo(fifo)
    done = []
    thread = threading.Thread(target=lambda: done.append(grade(TASK, fifo, answers)))
    thread.daemon = True
    start = time.monotonic()
    thread.start()
    thread.join(timeout=30)
    assert done, f"still waiting on a pipe after {time.monotonic() - start:.0f} s"
    assert "not a regular file" in done[0].reason


def test_a_socket_and_a_device(tmp_path, answers):
    path = tmp_path / "s.csv"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        refused(path, answers, "s.csv")
    refused("/dev/zero", answers, "not a regular file")


def test_size_limit(tmp_path, answers):
    grader = Grader(TASK, answers)
    assert grader.limit_bytes == MIN_LIMIT_BYTES
    path = tmp_path / "submission.csv"
    with path.open("wb") as file:  # sparse: takes no disk
        file.write(ANSWERS.encode())
        file.truncate(10 << 30)
    start = time.monotonic()
    result = grader.grade(path)
    assert "larger than 16 MiB" in result.reason
    assert time.monotonic() - start < 5
    assert size_limit(10 << 20) == 512 << 20
    assert size_limit(1 << 20) == 64 << 20


def test_a_file_that_grows_while_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "submission.csv"
    path.write_bytes(b"0123456789")
    real = os.fstat

    def small(descriptor):
        info = list(real(descriptor))
        info[6] = 3  # the size that was seen
        return os.stat_result(info)

    monkeypatch.setattr(os, "fstat", small)
    with pytest.raises(InvalidSubmission, match="larger"):
        read_regular_file(path, 5)
    assert read_regular_file(path, 10) == b"0123456789"


@pytest.mark.parametrize(
    "data",
    [
        b"," * 50_000 + b"\nx",
        b"x" * (2 << 20) + b"\n1\n",
        b'"' + b"a" * (2 << 20),
        b"id," * 30_000 + b"\n",
    ],
)
def test_a_header_that_would_exhaust_the_parser(data):
    with pytest.raises(InvalidSubmission, match="too long for a header"):
        parse_csv(data, "submission.csv")


def test_ragged_rows_and_odd_bytes():
    for data in (b"a,b\n1,2,3,4\n5\n1,2,3,4,5,6\n", b"a,b\n1,2\n1,2,3\n"):
        with pytest.raises(InvalidSubmission, match="not a CSV table"):
            parse_csv(data, "submission.csv")
    for data in (b"id,\xe9\n1,2\n", b"id,a\n1,\xff\n", b"\xff\xfei\0d\0"):
        with pytest.raises(InvalidSubmission, match="not UTF-8"):
            parse_csv(data, "submission.csv")


def test_text_columns_are_objects_under_every_pandas():
    frame = parse_csv(b"\xef\xbb\xbfid,after,n\nx,,1\ny,NA,2\n", "s")
    assert frame["id"].dtype == object
    assert list(frame.columns) == ["id", "after", "n"]
    assert frame["after"].isna().all()


def test_exact_decimal_conversion():
    digits = "0.1234567890123456789"
    frame = parse_csv(f"a\n{digits}\n".encode(), "s")
    assert frame.loc[0, "a"] == float(digits)


def test_quoted_numbers_of_any_length_do_not_hang():
    data = b"id,has_cactus\n" + b"9" * 100_000 + b",0.5\n"
    start = time.monotonic()
    parse_csv(data, "s")
    assert time.monotonic() - start < 20
