"""The ledger: whole records or none, whatever happens to the process or the disk."""

import errno
import json
import os
import subprocess
import sys
import tracemalloc

import pytest
from repo_paths import ROOT

from experiments.config.errors import LedgerError
from experiments.records import ledger as ledger_module
from experiments.records.ledger import Ledger, read, read_at


def _fill(path, count, start=0):
    with Ledger(path) as ledger:
        return [
            ledger.append({"run_id": f"r{i}", "x": i / 7, "text": "é\n"})
            for i in range(start, start + count)
        ]


def test_round_trip_and_offsets(tmp_path):
    path = tmp_path / "a.jsonl"
    offsets = _fill(path, 5)
    assert [o for o, _ in read(path)] == offsets
    assert [r["x"] for _, r in read(path)] == [i / 7 for i in range(5)]
    assert read_at(path, offsets[3])["run_id"] == "r3"
    assert [r["run_id"] for _, r in read(path, start=offsets[3])] == ["r3", "r4"]
    assert len(path.read_bytes().splitlines()) == 5


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_is_cut_off(tmp_path, cut):
    path = tmp_path / "a.jsonl"
    offsets = _fill(path, 3)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert [o for o, _ in read(path)] == offsets[:2]  # readers see whole lines alone
    with Ledger(path) as ledger:
        assert ledger.repaired == len(whole) - cut - offsets[2]
        assert len(ledger) == 2
        assert "r2" not in ledger
        ledger.append({"run_id": "r2", "again": True})
    assert [r["run_id"] for _, r in read(path)] == ["r0", "r1", "r2"]


@pytest.mark.parametrize("rest", [b"{", b"\0" * 5000, b"x" * 200_000])
def test_other_torn_ends(tmp_path, rest):
    path = tmp_path / "a.jsonl"
    _fill(path, 2)
    path.write_bytes(path.read_bytes() + rest)
    with Ledger(path) as ledger:
        assert ledger.repaired == len(rest)
        assert len(ledger) == 2
    path.write_bytes(rest)  # nothing but a torn line
    with Ledger(path) as ledger:
        assert len(ledger) == ledger.size == 0


def test_an_identity_is_used_once(tmp_path):
    path = tmp_path / "a.jsonl"
    _fill(path, 2)
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="'r1' already"):
        ledger.append({"run_id": "r1"})


def test_nan_is_refused(tmp_path):
    with Ledger(tmp_path / "a.jsonl") as ledger:
        with pytest.raises(ValueError):
            ledger.append({"run_id": "a", "reward": float("nan")})
        ledger.append({"run_id": "a", "reward": None})
    assert len(list(read(tmp_path / "a.jsonl"))) == 1


def test_damage_in_the_middle_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    offsets = _fill(path, 3)
    data = bytearray(path.read_bytes())
    data[offsets[1]] = ord("x")
    path.write_bytes(data)
    with pytest.raises(LedgerError, match=f"damaged at byte {offsets[1]}"):
        Ledger(path)
    assert path.read_bytes() == data


def test_two_writers(tmp_path):
    path = tmp_path / "a.jsonl"
    with Ledger(path), pytest.raises(LedgerError, match="another process"):
        Ledger(path)
    Ledger(path).close()


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(LedgerError, match="is this the folder of a run"):
        list(read(tmp_path / "none.jsonl"))
    with pytest.raises(LedgerError, match="cannot open"):
        Ledger(tmp_path / "none" / "a.jsonl")


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, call):
    path = tmp_path / "a.jsonl"
    _fill(path, 2)
    before = path.read_bytes()
    with Ledger(path) as ledger:

        def full(fd, *data):
            if data:
                os.pwrite(fd, b'{"run_id": "to', len(before))  # a part gets through
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(ledger_module.os, call, full)
            with pytest.raises(LedgerError, match=r"No space left.*--resume"):
                ledger.append({"run_id": "r2"})
        assert path.read_bytes() == before
        ledger.append({"run_id": "r2"})
    assert len(list(read(path))) == 3


def test_a_file_size_limit_is_a_full_disk(tmp_path):
    """A real refusal by the kernel, in a process of its own."""
    program = (
        "import resource, signal, sys\n"
        "from experiments.records.ledger import Ledger\n"
        "from experiments.config.errors import LedgerError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "ledger = Ledger(sys.argv[1])\n"
        "for i in range(100):\n"
        "    try:\n"
        "        ledger.append({'run_id': i, 'text': 'x' * 90})\n"
        "    except LedgerError as error:\n"
        "        print(i); break\n"
    )
    path = tmp_path / "a.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    written = int(done.stdout)
    assert 0 < written < 100
    assert len(path.read_bytes().splitlines()) == written
    assert len(list(read(path))) == written


def test_ten_thousand_attempts_stream(tmp_path):
    path = tmp_path / "a.jsonl"
    line = {"stdout": "x" * 1500, "stderr": "y" * 1500, "score": 0.5, "step": 1}
    with path.open("w") as file:
        for i in range(10_000):
            file.write(json.dumps({"run_id": i, **line}) + "\n")
    tracemalloc.start()
    try:
        assert sum(r["score"] for _, r in read(path)) == 5_000.0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 30e6
    assert peak < 1e6, f"{peak} bytes: the file was held in memory"
