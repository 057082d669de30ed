"""Audio tasks: whale (AIFF up-calls in ocean noise), mlsp-birds (songs in rain)."""

import io
import struct
import wave
from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.synthetic.common import write_csv, write_file, write_zip

_WHALE_RATE = 2000
_BIRD_RATE = 8000
_SPECIES = 19


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


def wav_bytes(samples: np.ndarray, rate: int) -> bytes:
    """16-bit mono WAV of int16 samples [frames]."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as handle:
        handle.setnchannels(1)
        handle.setsampwidth(2)
        handle.setframerate(rate)
        handle.writeframes(samples.astype("<i2").tobytes())
    return buffer.getvalue()


def coloured_noise(rng: np.random.Generator, frames: int, power: float) -> np.ndarray:
    """Noise with spectrum f^-power, scaled to unit variance."""
    spectrum = np.fft.rfft(rng.normal(size=frames))
    spectrum *= np.maximum(np.arange(spectrum.size), 4.0) ** (-power / 2)
    noise = np.fft.irfft(spectrum, frames)
    return noise / noise.std()


def sweep(start: float, stop: float, frames: int, rate: int) -> np.ndarray:
    """Windowed chirp from `start` to `stop` Hz."""
    f = np.linspace(start, stop, frames)
    return np.sin(2 * np.pi * np.cumsum(f) / rate) * np.hanning(frames)


def whale(
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


def mlsp_birds(
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
    common = 0.32 * (np.arange(1, _SPECIES + 1) ** -0.55)
    common = rng.permutation(common)
    prototypes = np.abs(rng.normal(size=(_SPECIES, 100))) ** 2
    prototypes /= prototypes.sum(1, keepdims=True)
    present = rng.random((n, _SPECIES)) < common
    present[rng.random(n) < 0.25] = False
    for row in np.flatnonzero(present.sum(1) > 4):
        present[row, rng.choice(np.flatnonzero(present[row]), 2, replace=False)] = False
    names, wavs, histogram = [], [], []
    for i in range(n):
        # Four clips of ten seconds come from one recording: one site, one time.
        recording, part = divmod(i, 4)
        day, quarter = recording % 28 + 1, recording % 4 * 15
        site = f"PC{recording % 17 + 1}_200906{day:02d}_05{quarter:02d}"
        names.append(f"{site}{recording // 28:02d}_{part * 10:04d}")
        clip = 0.7 * coloured_noise(rng, 2 * _BIRD_RATE, 1.0)
        if recording % 5 == 0:
            clip += 0.8 * rng.normal(size=clip.size)
        for s in np.flatnonzero(present[i]):
            _sing(rng, clip, low[s], low[s] + bend[s], int(beat[s]), length[s])
        wavs.append(np.clip(clip * 3000, -32000, 32000).astype(np.int16))
        mean = 0.25 * np.full(100, 0.01) + prototypes[present[i]].sum(0)
        counts = rng.poisson(mean * 6)
        total = max(counts.sum(), 1)
        histogram.append(",".join(f"{c / total:.6g}" for c in counts))
    fold = np.zeros(n, dtype=int)
    fold[rng.choice(n, n_test, replace=False)] = 1
    essential = public / "essential_data"
    _lines(essential / "CVfolds_2.txt", "rec_id,fold", enumerate(fold))
    _lines(essential / "rec_id2filename.txt", "rec_id,filename", enumerate(names))
    codes = [f"{k},SP{k:02d},Species {k}" for k in range(_SPECIES)]
    _lines(essential / "species_list.txt", "class_id,code,species", codes)
    labels = []
    for i in range(n):
        heard = ",".join(str(s) for s in np.flatnonzero(present[i]))
        labels.append(f"{i},{'?' if fold[i] else heard}".removesuffix(","))
    _lines(essential / "rec_labels_test_hidden.txt", "rec_id,[labels]", labels)
    for name, pcm in zip(names, wavs, strict=True):
        write_file(essential / "src_wavs" / f"{name}.wav", wav_bytes(pcm, _BIRD_RATE))
    _lines(
        public / "supplemental_data" / "histogram_of_segments.txt",
        "rec_id,[histogram of segment features]",
        enumerate(histogram),
    )
    hidden = np.flatnonzero(fold)
    answers = pd.DataFrame(
        {
            "Id": (hidden[:, None] * 100 + np.arange(_SPECIES)).ravel(),
            "Probability": present[hidden].astype(int).ravel(),
        }
    )
    write_csv(answers, private / "answers.csv")
    write_csv(answers.assign(Probability=0), public / "sample_submission.csv")


def _sing(
    rng: np.random.Generator,
    clip: np.ndarray,
    start: float,
    stop: float,
    beat: int,
    length: float,
) -> None:
    frames = int(length * _BIRD_RATE)
    loud = rng.lognormal(0.1, 0.5)
    shift = rng.normal(0, 25)
    syllable = loud * sweep(start + shift, stop + shift, frames, _BIRD_RATE)
    begin = rng.integers(0, clip.size // 3)
    for k in range(beat):
        at = begin + k * int(1.7 * frames)
        if at + frames <= clip.size:
            clip[at : at + frames] += syllable


def _lines(path: Path, header: str, rows) -> None:
    lines = [r if isinstance(r, str) else f"{r[0]},{r[1]}" for r in rows]
    write_file(path, ("\n".join([header, *lines]) + "\n").encode())
