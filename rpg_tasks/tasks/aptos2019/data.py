"""Retina discs with marks of a disease."""

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
    hex_ids,
    image_bytes,
    stratified_choice,
    write_csv,
    write_file,
)


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Retina discs; marks grow with the grade, and 8 % of labels are off by one."""
    n = n_train + n_test
    grade = rng.choice(5, n, p=(0.49, 0.1, 0.27, 0.06, 0.08))
    label = grade.copy()
    noisy = rng.random(n) < 0.08
    label[noisy] = np.clip(label[noisy] + rng.choice((-1, 1), int(noisy.sum())), 0, 4)
    frame = pd.DataFrame({"id_code": hex_ids(rng, n, 12), "diagnosis": label})
    test = stratified_choice(rng, frame["diagnosis"], n_test)
    for i, g, t in zip(frame["id_code"], grade, test, strict=True):
        folder = public / ("test_images" if t else "train_images")
        write_file(folder / f"{i}.png", image_bytes(_retina(rng, int(g)), "png"))
    hidden = frame[test]
    write_csv(frame[~test], public / "train.csv")
    write_csv(hidden[["id_code"]], public / "test.csv")
    write_csv(hidden.assign(diagnosis=0), public / "sample_submission.csv")
    write_csv(hidden, private / "test.csv")


def _retina(rng: np.random.Generator, grade: int) -> Pixels:
    tint = np.array((175, 85, 35)) * rng.uniform(0.75, 1.2) + rng.normal(0, 8, 3)
    canvas = Image.new("RGB", (64, 64))
    draw = ImageDraw.Draw(canvas)
    draw.ellipse((2, 2, 61, 61), fill=tuple(int(v) for v in np.clip(tint, 0, 255)))
    draw.ellipse((42, 27, 50, 36), fill=(250, 215, 130))
    for _ in range(6):
        bow = rng.normal(0, 14, 2)
        draw.line(
            [
                (46, 31),
                (30 + bow[0] / 2, 31 + bow[1]),
                (10 + bow[0] / 2, 31 + 1.6 * bow[1]),
            ],
            fill=(120, 30, 20),
        )
    rates = (1.3 * grade, 0.9 * max(grade - 1, 0), 0.6 * max(grade - 2, 0))
    dots, spots, blots = rng.poisson(rates)
    for number, radius, colour in (
        (dots, 0.6, (95, 12, 15)),
        (spots, 1.3, (255, 235, 120)),
        (blots, 3.0, (80, 8, 10)),
    ):
        for _ in range(number):
            r, a = 26 * np.sqrt(rng.random()), rng.uniform(0, 2 * np.pi)
            x, y = 32 + r * np.cos(a), 32 + r * np.sin(a)
            size = radius * rng.uniform(0.7, 1.3)
            draw.ellipse((x - size, y - size, x + size, y + size), fill=colour)
    return np.asarray(canvas) + rng.normal(0, 5, (64, 64, 3))


SYNTHETIC = SyntheticData(
    generate,
    small=(800, 200),
    medium=(3000, 600),
    scale="images 64x64",
)
SPLIT = SplitRule(stratify=("diagnosis",))
CARVE = TableLayout(
    id="id_code", media=(Media("train_images", "test_images", "{}.png"),)
)
