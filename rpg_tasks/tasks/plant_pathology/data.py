"""Apple leaves with rust, scab, both or neither."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from rpg_tasks.kit import (
    Media,
    Pixels,
    SplitRule,
    SyntheticData,
    TableLayout,
    image_bytes,
    one_hot,
    smooth_noise,
    stratified_choice,
    write_csv,
    write_file,
)


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Apple leaves: orange dots are rust, olive blotches scab, both are a class."""
    n = n_train + n_test
    classes = ("healthy", "multiple_diseases", "rust", "scab")
    kind = rng.choice(4, n, p=(0.28, 0.08, 0.34, 0.3))
    test = stratified_choice(rng, pd.Series(kind), n_test)
    number = np.zeros(n, dtype=int)
    for flag, name in ((False, "Train"), (True, "Test")):
        number[test == flag] = np.arange(int((test == flag).sum()))
        rows = test == flag
        ids = [f"{name}_{k}" for k in number[rows]]
        part = one_hot(np.array(classes)[kind[rows]], classes, image_id=ids)
        for i, k in zip(ids, kind[rows], strict=True):
            picture = image_bytes(
                _leaf(rng, rust=k in (1, 2), scab=k in (1, 3)), "jpeg"
            )
            write_file(public / "images" / f"{i}.jpg", picture)
        if flag:
            write_csv(part[["image_id"]], public / "test.csv")
            sample = part[["image_id"]].assign(**dict.fromkeys(classes, 0.25))
            write_csv(sample, public / "sample_submission.csv")
            write_csv(part, private / "test.csv")
        else:
            write_csv(part, public / "train.csv")


def _leaf(rng: np.random.Generator, rust: bool, scab: bool) -> Pixels:
    ground = np.array((110, 115, 95)) + rng.normal(0, 18, 3)
    canvas = Image.new("RGB", (64, 48), tuple(int(v) for v in np.clip(ground, 0, 255)))
    draw = ImageDraw.Draw(canvas)
    green = np.array((70, 130, 50)) * rng.uniform(0.75, 1.25)
    leaf = (
        rng.uniform(2, 8),
        rng.uniform(4, 9),
        rng.uniform(54, 62),
        rng.uniform(39, 45),
    )
    draw.ellipse(leaf, fill=tuple(int(v) for v in green))
    draw.line((4, 24, 60, 24), fill=tuple(int(v * 1.2) for v in green))

    def spot() -> tuple[float, float]:
        r, a = np.sqrt(rng.random()), rng.uniform(0, 2 * np.pi)
        return 32 + 24 * r * np.cos(a), 24 + 14 * r * np.sin(a)

    for present, few, size, colour in (
        (rust, 4, (0.7, 1.8), (205, 125, 35)),
        (scab, 3, (1.5, 3.8), (72, 78, 38)),
    ):
        # Insects and shade leave a mark or none on sound leaves.
        marks = rng.poisson(few) + 1 if present else rng.poisson(0.35)
        for _ in range(marks):
            (x, y), r = spot(), rng.uniform(*size)
            fill = tuple(
                int(v) for v in np.clip(np.array(colour) + rng.normal(0, 14, 3), 0, 255)
            )
            draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)
    texture = 9 * smooth_noise(rng, (48, 64), 12)[..., None]
    pixels: Pixels = np.asarray(canvas) + texture + rng.normal(0, 5, (48, 64, 3))
    return pixels


SYNTHETIC = SyntheticData(
    generate,
    small=(700, 200),
    medium=(1638, 183),
    scale="images 64x48",
)
SPLIT = SplitRule(stratify=("healthy", "multiple_diseases", "rust", "scab"))
CARVE = TableLayout(
    id="image_id", rename="Test_{}", media=(Media("images", "images", "{}.jpg"),)
)
