"""Desert from above, in zips."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    Media,
    Pixels,
    SplitRule,
    SyntheticData,
    TableLayout,
    hex_ids,
    image_bytes,
    smooth_noise,
    stratified_choice,
    write_csv,
    write_zip,
)


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Desert from above, 32x32, in zips; a cactus is a ridged column at any angle."""
    n = n_train + n_test
    ids = [f"{h}.jpg" for h in hex_ids(rng, n, 32)]
    frame = pd.DataFrame({"id": ids, "has_cactus": (rng.random(n) < 0.75).astype(int)})
    test = stratified_choice(rng, frame["has_cactus"], n_test)
    members: dict[str, list[tuple[str, bytes]]] = {"train": [], "test": []}
    for i, y, t in zip(ids, frame["has_cactus"], test, strict=True):
        picture = image_bytes(_desert(rng, bool(y)), "jpeg")
        members["test" if t else "train"].append((i, picture))
    for part, files in members.items():
        write_zip(public / f"{part}.zip", files)
    write_csv(frame[~test], public / "train.csv")
    hidden = frame[test]
    write_csv(hidden.assign(has_cactus=0.5), public / "sample_submission.csv")
    write_csv(hidden, private / "test.csv")


def _desert(rng: np.random.Generator, cactus: bool) -> Pixels:
    y, x = np.mgrid[:32, :32] - 15.5
    sand = np.array((165, 145, 130)) * rng.uniform(0.8, 1.15)
    light = 11 * smooth_noise(rng, (32, 32), 9) + 7 * smooth_noise(rng, (32, 32), 16)
    # Shrubs darken without a cactus, so mean colour alone says little.
    for _ in range(rng.poisson(1.2)):
        far = np.hypot(y - rng.uniform(-15, 15), x - rng.uniform(-15, 15))
        light -= rng.uniform(15, 45) * (far < rng.uniform(2, 5))
    if cactus:
        a = rng.uniform(0, np.pi)
        along = (x - rng.normal(0, 4)) * np.cos(a) + (y - rng.normal(0, 4)) * np.sin(a)
        across = -(x - rng.normal(0, 3)) * np.sin(a) + (y - rng.normal(0, 3)) * np.cos(
            a
        )
        body = (np.abs(across) < rng.uniform(2.2, 3.6)) & (
            np.abs(along) < rng.uniform(8, 15)
        )
        ridges = np.sign(np.sin(across * np.pi / 1.3))
        light += body * (rng.uniform(-12, 16) + rng.uniform(9, 28) * ridges)
    green = rng.uniform(-4, 8)
    tint = np.array((0, green, 0))
    pixels: Pixels = sand + light[..., None] * np.array((1, 1.02, 0.9)) + tint
    return pixels


SYNTHETIC = SyntheticData(
    generate,
    small=(900, 300),
    medium=(5000, 1200),
)
SPLIT = SplitRule(stratify=("has_cactus",))
CARVE = TableLayout(test=None, media=(Media("train.zip", "test.zip", "{}"),))
