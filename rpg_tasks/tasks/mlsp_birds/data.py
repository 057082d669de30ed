"""Nineteen songs in wind and rain; ragged text files."""

import io
import wave
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rpg_tasks.kit import (
    Draw,
    Mask,
    SplitRule,
    SyntheticData,
    coloured_noise,
    link_or_copy,
    read_text_table,
    sample_like,
    sweep,
    write_csv,
    write_file,
    write_lines,
)

_RATE = 8000
_SPECIES = 19


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Nineteen songs, none to four per clip, over wind and rain.

    The ragged text files are the competition's; the histogram of segments gives a cheap
    way, the wavs a better one.
    """
    n = n_train + n_test
    low = rng.permutation(np.linspace(500, 3000, _SPECIES))
    bend = rng.uniform(-500, 700, _SPECIES)
    beat = rng.integers(2, 9, _SPECIES)
    length = rng.uniform(0.05, 0.16, _SPECIES)
    present, prototypes = _species(rng, n)
    names, histogram = [], []
    essential = public / "essential_data"
    for i in range(n):
        # Four clips of ten seconds come from one recording: one site, one time.
        recording, part = divmod(i, 4)
        day, quarter = recording % 28 + 1, recording % 4 * 15
        site = f"PC{recording % 17 + 1}_200906{day:02d}_05{quarter:02d}"
        names.append(f"{site}{recording // 28:02d}_{part * 10:04d}")
        clip = 0.7 * coloured_noise(rng, 2 * _RATE, 1.0)
        if recording % 5 == 0:
            clip += 0.8 * rng.normal(size=clip.size)
        for s in np.flatnonzero(present[i]):
            _sing(rng, clip, low[s], low[s] + bend[s], int(beat[s]), length[s])
        pcm = np.clip(clip * 3000, -32000, 32000).astype(np.int16)
        write_file(essential / "src_wavs" / f"{names[-1]}.wav", _wav_bytes(pcm, _RATE))
        mean = 0.25 * np.full(100, 0.01) + prototypes[present[i]].sum(0)
        counts = rng.poisson(mean * 6)
        total = max(counts.sum(), 1)
        histogram.append(",".join(f"{c / total:.6g}" for c in counts))
    fold = np.zeros(n, dtype=int)
    fold[rng.choice(n, n_test, replace=False)] = 1
    _write_texts(public, names, fold, present, histogram)
    hidden = np.flatnonzero(fold)
    answers = pd.DataFrame(
        {
            "Id": (hidden[:, None] * 100 + np.arange(_SPECIES)).ravel(),
            "Probability": present[hidden].astype(int).ravel(),
        }
    )
    write_csv(answers, private / "answers.csv")
    write_csv(answers.assign(Probability=0), public / "sample_submission.csv")


def _species(rng: np.random.Generator, n: int) -> tuple[Mask, NDArray[np.float64]]:
    """Which species is heard in which clip, and each one's histogram of segments."""
    common = 0.32 * (np.arange(1, _SPECIES + 1) ** -0.55)
    common = rng.permutation(common)
    prototypes = np.abs(rng.normal(size=(_SPECIES, 100))) ** 2
    prototypes /= prototypes.sum(1, keepdims=True)
    present = rng.random((n, _SPECIES)) < common
    present[rng.random(n) < 0.25] = False
    for row in np.flatnonzero(present.sum(1) > 4):
        present[row, rng.choice(np.flatnonzero(present[row]), 2, replace=False)] = False
    return present, prototypes


def _write_texts(
    public: Path,
    names: list[str],
    fold: NDArray[np.int_],
    present: Mask,
    histogram: list[str],
) -> None:
    """The public text files; a `?` in place of the species marks a test clip."""

    def write(name: str, header: str, rows: Iterable[str]) -> None:
        write_lines(public / name, [header, *rows])

    def numbered(values: Iterable[object]) -> list[str]:
        return [f"{i},{value}" for i, value in enumerate(values)]

    write("essential_data/CVfolds_2.txt", "rec_id,fold", numbered(fold))
    write("essential_data/rec_id2filename.txt", "rec_id,filename", numbered(names))
    codes = [f"{k},SP{k:02d},Species {k}" for k in range(_SPECIES)]
    write("essential_data/species_list.txt", "class_id,code,species", codes)
    heard = [",".join(str(s) for s in np.flatnonzero(row)) for row in present]
    shown = ["?" if test else h for test, h in zip(fold, heard, strict=True)]
    labels = [line.removesuffix(",") for line in numbered(shown)]
    write("essential_data/rec_labels_test_hidden.txt", "rec_id,[labels]", labels)
    write(
        "supplemental_data/histogram_of_segments.txt",
        "rec_id,[histogram of segment features]",
        numbered(histogram),
    )


def _sing(
    rng: np.random.Generator,
    clip: np.ndarray,
    start: float,
    stop: float,
    beat: int,
    length: float,
) -> None:
    frames = int(length * _RATE)
    loud = rng.lognormal(0.1, 0.5)
    shift = rng.normal(0, 25)
    syllable = loud * sweep(start + shift, stop + shift, frames, _RATE)
    begin = rng.integers(0, clip.size // 3)
    for k in range(beat):
        at = begin + k * int(1.7 * frames)
        if at + frames <= clip.size:
            clip[at : at + frames] += syllable


def _wav_bytes(samples: np.ndarray, rate: int) -> bytes:
    """16-bit mono WAV of int16 samples [frames]."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as handle:
        handle.setnchannels(1)
        handle.setsampwidth(2)
        handle.setframerate(rate)
        handle.writeframes(samples.astype("<i2").tobytes())
    return buffer.getvalue()


def carve(draw: Draw, src: Path, public: Path, private: Path) -> None:
    """Whole recordings (site and time in the file name); ragged tables, kept as lines.

    The competition's own test recordings leave the view altogether.
    """
    essential = src / "essential_data"
    folds = read_text_table(essential / "CVfolds_2.txt")
    names = read_text_table(essential / "rec_id2filename.txt")
    frame = folds[folds["fold"] == "0"].merge(names, on="rec_id")
    frame["recording"] = [f.rsplit("_", 1)[0] for f in frame["filename"]]
    mask = draw.mask(frame)
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
    write_lines(public / "essential_data" / "rec_labels_test_hidden.txt", lines)
    for table in sorted((src / "supplemental_data").glob("*.txt")):
        with table.open(encoding="utf-8") as handle:
            kept = [next(handle).rstrip("\n")]
        kept += [f"{i},{rest}" if rest else i for i, rest in _ragged(table) if i in ids]
        write_lines(public / "supplemental_data" / table.name, kept)
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
        rows += [(int(rec_id) * 100 + s, int(s in heard)) for s in range(_SPECIES)]
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


SYNTHETIC = SyntheticData(
    generate,
    small=(180, 64),
    medium=(258, 64),
    scale="clips of 2 s at 8 kHz; of supplemental_data the histogram of segments only",
)
SPLIT = SplitRule(group="recording")
CARVE = carve
