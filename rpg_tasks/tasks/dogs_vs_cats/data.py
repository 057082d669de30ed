"""Faces of dogs and cats; the file's name is the label."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from rpg_tasks.kit import (
    Draw,
    Pixels,
    SplitRule,
    SyntheticData,
    files_in,
    fresh_copy,
    image_bytes,
    link_or_copy,
    sample_like,
    smooth_noise,
    stratified_choice,
    write_csv,
    write_file,
    write_zip,
)


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Cats have pointed ears and slit eyes, dogs hanging ears and a snout; any coat.

    Training images carry the label in their name; folders and zips hold the same files.
    """
    n = n_train + n_test
    dog = rng.random(n) < 0.5
    test = stratified_choice(rng, pd.Series(dog), n_test)
    answers: list[tuple[int, int]] = []
    counts = {"cat": 0, "dog": 0}
    members: dict[str, list[tuple[str, bytes]]] = {"train": [], "test": []}
    for is_dog, t in zip(dog, test, strict=True):
        picture = image_bytes(_face(rng, bool(is_dog)), "jpeg")
        kind = "dog" if is_dog else "cat"
        if t:
            answers.append((len(answers) + 1, int(is_dog)))
            members["test"].append((f"{len(answers)}.jpg", picture))
        else:
            members["train"].append((f"{kind}.{counts[kind]}.jpg", picture))
            counts[kind] += 1
    for part, files in members.items():
        for name, data in files:
            write_file(public / part / name, data)
        write_zip(public / f"{part}.zip", files)
    table = pd.DataFrame(answers, columns=["id", "label"])
    write_csv(table.assign(label=0.5), public / "sample_submission.csv")
    write_csv(table, private / "answers.csv")


def _face(rng: np.random.Generator, dog: bool) -> Pixels:
    coat = rng.uniform(50, 215, 3) * 0.5 + rng.uniform(50, 215) * 0.5
    ground = rng.uniform(40, 220, 3)
    canvas = Image.new("RGB", (48, 48), tuple(int(v) for v in ground))
    draw = ImageDraw.Draw(canvas)

    def ink(shade: float) -> tuple[int, ...]:
        return tuple(int(v) for v in np.clip(coat * shade, 0, 255))

    cx, cy = rng.normal(24, 2.2), rng.normal(26, 2.2)
    r = rng.uniform(11, 15)
    ear = rng.uniform(0.7, 0.95) if rng.random() < 0.5 else rng.uniform(1.05, 1.3)
    for side in (-1, 1):
        if dog:
            x = cx + side * r
            lift = rng.uniform(-7, -1)
            draw.ellipse(
                (x - 3.5, cy + lift - 4, x + 3.5, cy + lift + 12), fill=ink(ear)
            )
        else:
            x = cx + side * r * 0.62
            tip = cy - r - rng.uniform(3, 8)
            points = [(x - 5, cy - r * 0.6), (x + 5, cy - r * 0.6), (x + side * 2, tip)]
            draw.polygon(points, fill=ink(ear))
    draw.ellipse(
        (cx - r, cy - r, cx + r, cy + r * rng.uniform(0.9, 1.1)), fill=ink(1.0)
    )
    for side in (-1, 1):
        x, y = cx + side * r * 0.42, cy - r * 0.2
        if dog:
            draw.ellipse((x - 2, y - 2, x + 2, y + 2), fill=(25, 18, 12))
        else:
            draw.ellipse((x - 2.6, y - 1.8, x + 2.6, y + 1.8), fill=(190, 200, 80))
            draw.line((x, y - 2, x, y + 2), fill=(10, 10, 10))
    if dog:
        long = rng.uniform(4, 8)
        draw.ellipse((cx - 4, cy, cx + 4, cy + long + 4), fill=ink(1.25))
        draw.ellipse((cx - 2.5, cy + 1, cx + 2.5, cy + 4), fill=(20, 20, 20))
    else:
        draw.polygon(
            [(cx - 2, cy + 3), (cx + 2, cy + 3), (cx, cy + 6)], fill=(210, 130, 130)
        )
    fur = (
        rng.uniform(6, 22)
        * smooth_noise(rng, (48, 48), int(rng.integers(8, 24)))[..., None]
    )
    return np.asarray(canvas) + fur + rng.normal(0, 7, (48, 48, 3))


def carve(draw: Draw, src: Path, public: Path, private: Path) -> None:
    """The label is in the training file's name; validation images get numbers."""
    names = [p.name for p in files_in(src / "train", "*.jpg")]
    frame = pd.DataFrame({"name": names, "animal": [n.split(".")[0] for n in names]})
    mask = draw.mask(frame)
    held = frame[mask].iloc[draw.rng.permutation(int(mask.sum()))]
    answers = pd.DataFrame(
        {
            "id": np.arange(1, len(held) + 1),
            "label": (held["animal"] == "dog").astype(int).to_numpy(),
        }
    )
    for name in frame["name"][~mask]:
        link_or_copy(src / "train" / name, public / "train" / name)
    for number, name in zip(answers["id"], held["name"], strict=True):
        fresh_copy(src / "train" / name, public / "test" / f"{number}.jpg")
    for part in ("train", "test"):
        files = (public / part).glob("*.jpg")
        write_zip(public / f"{part}.zip", ((p.name, p.read_bytes()) for p in files))
    write_csv(answers, private / "answers.csv")
    sample = sample_like(src / "sample_submission.csv", answers, "id")
    write_csv(sample, public / "sample_submission.csv")


SYNTHETIC = SyntheticData(
    generate,
    small=(1000, 250),
    medium=(5000, 1000),
    scale="images 48x48",
)
SPLIT = SplitRule(stratify=("animal",))
CARVE = carve
