"""Photographs: aerial-cactus, plant-pathology, dog-breed, dogs-vs-cats."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from rpg_tasks.splits import stratified_choice
from rpg_tasks.synthetic.common import (
    hex_ids,
    image_bytes,
    one_hot,
    smooth_noise,
    write_csv,
    write_file,
    write_zip,
)
from rpg_tasks.synthetic.names import DOG_BREEDS


def aerial_cactus(
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


def _desert(rng: np.random.Generator, cactus: bool) -> np.ndarray:
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
    return sand + light[..., None] * np.array((1, 1.02, 0.9)) + np.array((0, green, 0))


def plant_pathology(
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


def _leaf(rng: np.random.Generator, rust: bool, scab: bool) -> np.ndarray:
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
    return np.asarray(canvas) + texture + rng.normal(0, 5, (48, 64, 3))


def dog_breed(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """120 breeds: coat colours, markings and build from a latent vector per breed."""
    n = n_train + n_test
    breed = rng.permutation(np.arange(n) % len(DOG_BREEDS))
    latent = rng.normal(size=(len(DOG_BREEDS), 12))
    frame = pd.DataFrame(
        {"id": hex_ids(rng, n, 32), "breed": np.array(DOG_BREEDS)[breed]}
    )
    test = stratified_choice(rng, frame["breed"], n_test)
    for i, b, t in zip(frame["id"], breed, test, strict=True):
        place = public / ("test" if t else "train") / f"{i}.jpg"
        z = latent[b] + 0.3 * rng.normal(size=12)
        write_file(place, image_bytes(_dog(rng, z), "jpeg", 95))
    hidden = frame[test]
    write_csv(frame[~test], public / "labels.csv")
    sample = pd.DataFrame({"id": hidden["id"], **dict.fromkeys(DOG_BREEDS, 1 / 120)})
    write_csv(sample, public / "sample_submission.csv")
    ids = hidden["id"].to_numpy()
    answers = one_hot(hidden["breed"].to_numpy(), DOG_BREEDS, id=ids)
    write_csv(answers, private / "test.csv")


def _dog(rng: np.random.Generator, z: np.ndarray) -> np.ndarray:
    coat = 130 + 48 * np.tanh(z[:3]) + 26 * z[3]
    mark = 130 + 60 * np.tanh(z[4:7])
    y, x = np.mgrid[:48, :48]
    x, y = x - 24 + rng.normal(0, 1.5), y - 26 + rng.normal(0, 1.5)
    wide, tall = 13 + 2.5 * np.tanh(z[7]), 14 + 2.5 * np.tanh(z[8])
    head = (x / wide) ** 2 + (y / tall) ** 2 < 1
    ear_y, ear_r = -11 + 6 * np.tanh(z[9]), 5 + 1.5 * np.tanh(z[10])
    ears = (
        ((np.abs(x) - wide + 2) / ear_r) ** 2 + ((y - ear_y) / (ear_r * 1.4)) ** 2
    ) < 1
    stripes = (
        np.sin((0.45 + 0.2 * np.tanh(z[11])) * (x + y * np.tanh(z[8])) + 1.0) > 0.4
    )
    ground = rng.uniform(60, 200, 3)
    pixels = np.empty((48, 48, 3))
    pixels[:] = ground + 15 * smooth_noise(rng, (48, 48), 4)[..., None]
    pixels[head] = coat
    pixels[head & stripes] = 0.45 * coat + 0.55 * mark
    pixels[ears] = mark
    for side in (-5, 5):
        pixels[np.hypot(x - side, y + 3) < 1.6] = 15
    pixels[np.hypot(x, y - 5) < 2.4] = 25
    return pixels * rng.uniform(0.93, 1.07) + rng.normal(0, 6, pixels.shape)


def dogs_vs_cats(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Cats have pointed ears and slit eyes, dogs hanging ears and a snout; any coat.

    Training images carry the label in their name; folders and zips hold the same files.
    """
    n = n_train + n_test
    dog = rng.random(n) < 0.5
    test = stratified_choice(rng, pd.Series(dog), n_test)
    answers = []
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


def _face(rng: np.random.Generator, dog: bool) -> np.ndarray:
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
