"""AIFF clips of up-calls in ocean noise."""

import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    Draw,
    SplitRule,
    SyntheticData,
    coloured_noise,
    sample_like,
    sweep,
    write_csv,
    write_zip,
)

_WHALE_RATE = 2000


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """An up-sweep from about 90 to 200 Hz is a whale; down-sweeps and hums are not.

    Noise level and colour drift by day; training and test days differ, as in the
    competition. Clips are numbered in time order and carry their label in the name.
    """
    days = ("20090328", "20090329", "20090330", "20090331")
    first, third = int(0.62 * n_train), n_test // 2
    sizes = (first, n_train - first, third, n_test - third)
    frames = _WHALE_RATE
    members: dict[str, list[tuple[str, bytes]]] = {"train2": [], "test2": []}
    rows = []
    for d, (day, size) in enumerate(zip(days, sizes, strict=True)):
        part = "train2" if d < 2 else "test2"
        seconds = np.sort(rng.choice(86400, size, replace=False))
        labels = np.zeros(size, dtype=int)
        labels[rng.choice(size, round(size * (0.3 + 0.04 * d)), replace=False)] = 1
        for second, label in zip(seconds, labels, strict=True):
            signal = coloured_noise(rng, frames, 0.7 + 0.12 * d) * (1 + 0.15 * d)
            signal += _call(rng, bool(label), frames)
            pcm = np.clip(signal * 900, -32000, 32000).astype(np.int16)
            stamp = f"{second // 3600:02d}{second // 60 % 60:02d}{second % 60:02d}"
            index = len(members[part])
            start = f"{day}_{stamp}_{rng.integers(0, 9000)}ms"
            if part == "train2":
                name = f"{start}_TRAIN{index}_{label}.aif"
            else:
                name = f"{start}_Test{index}.aif"
                rows.append((name, label))
            members[part].append((f"{part}/{name}", aiff_bytes(pcm, _WHALE_RATE)))
    for part, files in members.items():
        write_zip(public / f"{part}.zip", files)
    answers = pd.DataFrame(rows, columns=["clip", "probability"])
    write_csv(answers, private / "test.csv")
    write_csv(answers.assign(probability=0), public / "sampleSubmission.csv")


def _call(rng: np.random.Generator, whale: bool, frames: int) -> np.ndarray:
    out = np.zeros(frames)
    low, high = rng.normal(95, 8), rng.normal(195, 14)
    kind = rng.random()
    if whale:
        start, stop, loud = low, high, rng.lognormal(0.1, 0.35)
    elif kind < 0.35:
        start, stop, loud = high, low, rng.lognormal(0.0, 0.35)
    elif kind < 0.5:
        hum = rng.uniform(80, 320)
        start, stop, loud = hum, hum, rng.lognormal(0.0, 0.35)
    else:
        return out
    size = int(frames * rng.uniform(0.35, 0.6))
    at = rng.integers(0, frames - size)
    out[at : at + size] = loud * sweep(start, stop, size, _WHALE_RATE)
    return out


def aiff_bytes(samples: np.ndarray, rate: int) -> bytes:
    """16-bit mono AIFF: big-endian chunks FORM, COMM and SSND.

    Args:
        samples: int16 [frames].
        rate: frames per second; stored as an 80-bit float, as the format wants.
    """
    exponent = int(rate).bit_length() - 1
    extended = struct.pack(">HQ", 16383 + exponent, rate << (63 - exponent))
    comm = struct.pack(">hIh", 1, len(samples), 16) + extended
    sound = struct.pack(">II", 0, 0) + samples.astype(">i2").tobytes()
    chunks = b"".join(
        name + struct.pack(">I", len(data)) + data + b"\0" * (len(data) % 2)
        for name, data in ((b"COMM", comm), (b"SSND", sound))
    )
    return b"FORM" + struct.pack(">I", 4 + len(chunks)) + b"AIFF" + chunks


def carve(draw: Draw, src: Path, public: Path, private: Path) -> None:
    """The last training day: the test split lies in later days, too.

    The label is the last character of a training clip's name; validation clips are
    renamed as the competition renames its test clips.
    """
    with zipfile.ZipFile(src / "train2.zip") as archive:
        names = sorted(m for m in archive.namelist() if m.endswith(".aif"))
        frame = pd.DataFrame({"name": names})
        frame["day"] = [Path(m).name.split("_")[0] for m in names]
        mask = draw.mask(frame)
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


SYNTHETIC = SyntheticData(
    generate,
    small=(900, 300),
    medium=(4000, 1500),
    scale="clips of 1 s",
)
SPLIT = SplitRule(group="day", last=True)
CARVE = carve
