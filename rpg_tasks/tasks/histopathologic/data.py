"""Stained tissue; only the centre counts."""

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
    smooth_noise,
    stratified_choice,
    write_csv,
    write_file,
)


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Stained tissue; only dark crowded nuclei in the centre third make a positive."""
    n = n_train + n_test
    frame = pd.DataFrame(
        {"id": hex_ids(rng, n, 40), "label": (rng.random(n) < 0.405).astype(int)}
    )
    test = stratified_choice(rng, frame["label"], n_test)
    for i, y, t in zip(frame["id"], frame["label"], test, strict=True):
        place = public / ("test" if t else "train") / f"{i}.tif"
        write_file(place, image_bytes(_tissue(rng, bool(y)), "tiff"))
    hidden = frame[test]
    write_csv(frame[~test], public / "train_labels.csv")
    write_csv(hidden.assign(label=0), public / "sample_submission.csv")
    write_csv(hidden, private / "answers.csv")


def _tissue(rng: np.random.Generator, positive: bool) -> Pixels:
    stain = np.array((215, 150, 200)) * rng.uniform(0.9, 1.1)
    pixels = stain + 14 * smooth_noise(rng, (48, 48), 8)[..., None]
    canvas = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(canvas)

    def nuclei(number: int, box: tuple[float, float], shade: float) -> None:
        for _ in range(number):
            x, y = rng.uniform(*box, 2)
            r = rng.uniform(1.2, 2.2)
            fill = tuple(int(v * shade) for v in (105, 60, 130))
            draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)

    tone = rng.uniform(0.9, 1.25)
    nuclei(int(rng.poisson(12)), (0, 48), tone)
    if rng.random() < 0.5:  # a distractor: crowded nuclei away from the centre
        corner = float(rng.choice((0, 33)))
        nuclei(int(rng.poisson(9)), (corner, corner + 14), 0.85 * tone)
    if positive:
        nuclei(int(rng.poisson(4)) + 1, (16, 32), rng.uniform(0.8, 1.0) * tone)
    else:
        nuclei(int(rng.poisson(1.3)), (16, 32), tone)
    return np.asarray(canvas) + rng.normal(0, 6, (48, 48, 3))


SYNTHETIC = SyntheticData(
    generate,
    small=(900, 300),
    medium=(5000, 1500),
    scale="images 48x48",
)
SPLIT = SplitRule(stratify=("label",))
CARVE = TableLayout(
    train="train_labels.csv",
    test=None,
    answers="answers.csv",
    media=(Media("train", "test", "{}.tif"),),
)
