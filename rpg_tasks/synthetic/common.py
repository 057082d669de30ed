"""Tools that every generator uses: keyed randomness, words, files, archives, images."""

import binascii
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

# Archives must not tell when (in which order) their members were made.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def make_rng(name: str, seed: int) -> np.random.Generator:
    """Independent stream per (name, seed), equal on every platform.

    Args:
        name: what the stream is for, e.g. a task's short name.
        seed: non-negative integer.
    """
    return np.random.default_rng([binascii.crc32(name.encode()), seed])


def hex_ids(rng: np.random.Generator, n: int, width: int) -> list[str]:
    """`n` distinct lower-case hexadecimal ids of `width` characters."""
    ids: dict[str, None] = {}
    while len(ids) < n:
        ids[rng.bytes((width + 1) // 2).hex()[:width]] = None
    return list(ids)


def numbered_ids(rng: np.random.Generator, n: int, form: str, top: int) -> list[str]:
    """`n` distinct ids `form.format(k)` with k drawn from range(top), unordered."""
    return [form.format(k) for k in rng.choice(top, n, replace=False)]


def pseudo_words(
    rng: np.random.Generator, n: int, syllables: tuple[int, int] = (1, 3)
) -> np.ndarray:
    """`n` distinct pronounceable words; short ones come first, as in a real lexicon."""
    onsets = [
        "b",
        "c",
        "d",
        "f",
        "g",
        "h",
        "l",
        "m",
        "n",
        "p",
        "r",
        "s",
        "t",
        "v",
        "w",
        "br",
        "ch",
        "cr",
        "dr",
        "fl",
        "gr",
        "pl",
        "sh",
        "st",
        "th",
        "tr",
    ]
    vowels = ["a", "e", "i", "o", "u", "ai", "ea", "ee", "io", "ou"]
    codas = ["", "", "", "n", "r", "s", "t", "l", "nd", "st", "ck"]
    words: dict[str, None] = {}
    while len(words) < n:
        k = rng.integers(syllables[0], syllables[1] + 1)
        parts = [rng.choice(onsets) + rng.choice(vowels) for _ in range(k)]
        words["".join(parts) + rng.choice(codas)] = None
    return np.array(sorted(words, key=len), dtype=object)


def zipf_weights(n: int, exponent: float = 1.0, shift: float = 2.7) -> np.ndarray:
    """Zipf-Mandelbrot probabilities, p_k proportional to (k + shift)^-exponent."""
    p = (np.arange(n) + shift) ** -exponent
    return p / p.sum()


def token_lists(
    rng: np.random.Generator, words: np.ndarray, p: np.ndarray, lengths: np.ndarray
) -> list[list[str]]:
    """One list of words per entry of `lengths`, drawn independently from `p`."""
    flat = words[rng.choice(words.size, int(lengths.sum()), p=p)]
    return [list(part) for part in np.split(flat, np.cumsum(lengths)[:-1])]


def sentence(tokens: list[str], end: str = ".") -> str:
    """Join tokens as a sentence: capital first letter, closing mark."""
    text = " ".join(tokens)
    return text[:1].upper() + text[1:] + end


def write_csv(frame: pd.DataFrame, path: Path, **kwargs) -> None:
    """Write a table without its index; make the folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, **kwargs)


def csv_bytes(frame: pd.DataFrame, **kwargs) -> bytes:
    """The bytes that `write_csv` would write."""
    return frame.to_csv(index=False, **kwargs).encode("utf-8")


def write_file(path: Path, data: bytes) -> None:
    """Write bytes; make the folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_zip(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write a zip whose members are sorted by name and carry one fixed date."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in sorted(members):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data, compresslevel=3)


def image_bytes(pixels: np.ndarray, kind: str, quality: int = 90) -> bytes:
    """Encode [H, W] or [H, W, 3] pixels (any float or int, 0-255) as jpeg, png, tiff.

    Args:
        pixels: values outside 0..255 are clipped.
        kind: a Pillow format name, "jpeg", "png", "tiff" or "bmp".
        quality: jpeg quality.
    """
    image = Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
    buffer = io.BytesIO()
    options = {"quality": quality} if kind == "jpeg" else {}
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def smooth_noise(
    rng: np.random.Generator, shape: tuple[int, int], cells: int
) -> np.ndarray:
    """Standard-normal noise on a `cells` x `cells` grid, enlarged to `shape`."""
    coarse = Image.fromarray(rng.normal(size=(cells, cells)).astype(np.float32))
    return np.asarray(coarse.resize(shape[::-1], Image.Resampling.BICUBIC))


def one_hot(
    labels: np.ndarray, classes: Iterable[str], **lead: Iterable
) -> pd.DataFrame:
    """Integer 0/1 columns, one per class in the order given, after those of `lead`."""
    return pd.DataFrame({**lead, **{c: (labels == c).astype(int) for c in classes}})
