"""Pages of text under stains, creases and shadow."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from rpg_tasks.kit import (
    Draw,
    Pixels,
    SplitRule,
    SyntheticData,
    files_in,
    image_bytes,
    link_or_copy,
    pixel_table,
    pseudo_words,
    smooth_noise,
    write_csv,
    write_file,
)

_SHAPE = (60, 120)


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Clean pages are rendered glyphs; dirty ones darken, stain and blur them."""
    words = pseudo_words(rng, 400)
    n = n_train + n_test
    names = [
        f"{k}.png" for k in np.sort(rng.choice(np.arange(1, 217), n, replace=False))
    ]
    hidden = set(rng.choice(names, n_test, replace=False))
    answers = private / "clean"
    for name in names:
        clean = _page(rng, words)
        test = name in hidden
        folder = answers if test else public / "train_cleaned"
        write_file(folder / name, image_bytes(clean, "png"))
        dirty = public / ("test" if test else "train")
        write_file(dirty / name, image_bytes(_soil(rng, clean), "png"))
    table = pixel_table(sorted(answers.glob("*.png")))
    for path in answers.glob("*.png"):
        path.unlink()
    answers.rmdir()
    write_csv(table, private / "answers.csv")
    write_csv(table.assign(value=1), public / "sampleSubmission.csv")


def _page(rng: np.random.Generator, words: np.ndarray) -> Pixels:
    height, width = _SHAPE
    canvas = Image.new("L", (width, height), 255)
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(size=int(rng.integers(9, 13)))
    y, step = int(rng.integers(0, 4)), int(rng.integers(11, 14))
    while y < height - 8:
        line = " ".join(rng.choice(words, 8))
        draw.text(
            (int(rng.integers(1, 6)), y), line, fill=int(rng.integers(0, 50)), font=font
        )
        y += step
    return np.asarray(canvas, dtype=np.float64)


def _soil(rng: np.random.Generator, clean: np.ndarray) -> Pixels:
    height, width = clean.shape
    paper = 0.8 + 0.05 * smooth_noise(rng, clean.shape, 4)
    y, x = np.mgrid[:height, :width]
    for _ in range(rng.integers(1, 4)):
        radius = rng.uniform(10, 30)
        far = np.hypot(y - rng.uniform(0, height), x - rng.uniform(0, width))
        ring = np.exp(-(((far - radius) / rng.uniform(2, 4)) ** 2))
        disc = far < radius
        paper *= 1 - rng.uniform(0.15, 0.4) * ring - rng.uniform(0, 0.15) * disc
    for _ in range(rng.integers(0, 3)):
        crease = np.abs(
            x * np.sin(a := rng.uniform(0, 3.1)) + y * np.cos(a) - rng.uniform(0, 90)
        )
        paper *= 1 - 0.2 * np.exp(-crease)
    grain = rng.normal(0, 0.03, clean.shape)
    return 255 * np.clip(0.08 + 0.92 * (clean / 255) * paper + grain, 0, 1)


def carve(draw: Draw, src: Path, public: Path, private: Path) -> None:
    """Whole pages: the same clean page may come with several kinds of dirt."""
    clean = files_in(src / "train_cleaned", "*.png")
    page = [hashlib.sha256(p.read_bytes()).hexdigest() for p in clean]
    frame = pd.DataFrame({"name": [p.name for p in clean], "page": page})
    mask = draw.mask(frame)
    for name in frame["name"][~mask]:
        for folder in ("train", "train_cleaned"):
            link_or_copy(src / folder / name, public / folder / name)
    held = list(frame["name"][mask])
    for name in held:
        link_or_copy(src / "train" / name, public / "test" / name)
    answers = pixel_table([src / "train_cleaned" / name for name in held])
    write_csv(answers, private / "answers.csv")
    write_csv(answers.assign(value=1), public / "sampleSubmission.csv")


SYNTHETIC = SyntheticData(
    generate,
    small=(12, 4),
    medium=(48, 12),
    scale="pages of 60x120 pixels",
)
SPLIT = SplitRule(group="page")
CARVE = carve
