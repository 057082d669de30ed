"""Chest-like pictures with tubes and catheters."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from rpg_tasks.kit import (
    Media,
    SplitRule,
    SyntheticData,
    TableLayout,
    hex_ids,
    image_bytes,
    numbered_ids,
    smooth_noise,
    whole_groups,
    write_csv,
    write_file,
)

_STATES = {
    "ETT": (("Abnormal", 0.12), ("Borderline", 0.22), ("Normal", 0.66)),
    "NGT": (
        ("Abnormal", 0.15),
        ("Borderline", 0.2),
        ("Incompletely Imaged", 0.25),
        ("Normal", 0.4),
    ),
    "CVC": (("Abnormal", 0.2), ("Borderline", 0.3), ("Normal", 0.5)),
}
# Distance of a tip from its landmark, pixels, per state: (mean, spread).
_TIPS = {
    "Normal": (-9.0, 1.6),
    "Borderline": (-2.5, 1.4),
    "Abnormal": (4.0, 1.8),
    "Incompletely Imaged": (30.0, 0.1),
}


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Chest-like pictures with tubes; where a tube ends, against a landmark, is graded.

    Patients have one to four pictures with one body; each part holds whole patients.
    """
    n = n_train + n_test
    columns = [f"{family} - {state}" for family, s in _STATES.items() for state, _ in s]
    labels = pd.DataFrame(0, index=range(n), columns=columns)
    labels["Swan Ganz Catheter Present"] = (rng.random(n) < 0.1).astype(int)
    bodies = np.repeat(np.arange(n), rng.integers(1, 5, n))[:n]
    notes = []
    uids = numbered_ids(rng, n, "1.2.826.0.1.3680043.8.498.{}", 10**9)
    body_seed = rng.integers(2**32)
    for i, body in enumerate(bodies):
        canvas, shift = _chest(np.random.default_rng([body_seed, body]))
        draw = ImageDraw.Draw(canvas)
        for family, states in _STATES.items():
            if rng.random() > {"ETT": 0.5, "NGT": 0.5, "CVC": 0.8}[family]:
                continue
            names, shares = zip(*states, strict=True)
            state = str(rng.choice(names, p=shares))
            mean, spread = _TIPS[state]
            path = _tube(rng, family, rng.normal(mean, spread), shift)
            shade = int(rng.integers(185, 240))
            draw.line(
                path, fill=shade, width=2 if family == "ETT" else 1, joint="curve"
            )
            labels.loc[i, f"{family} - {state}"] = 1
            points = str([[round(x), round(y)] for x, y in path])
            notes.append((uids[i], f"{family} - {state}", points))
        pixels = np.asarray(canvas) + rng.normal(0, 6, (64, 64))
        labels.loc[i, "pixels"] = i
        write_file(private / "images" / f"{i}.jpg", image_bytes(pixels, "jpeg"))
    frame = labels.drop(columns="pixels")
    frame.insert(0, "StudyInstanceUID", uids)
    people = np.array(hex_ids(rng, int(bodies.max()) + 1, 9))
    frame["PatientID"] = people[bodies]
    test = whole_groups(rng, frame, "PatientID", "ETT - Abnormal", n_test)
    _place(private / "images", "jpg", frame["StudyInstanceUID"], test, public)
    graded = columns[:-1]
    write_csv(frame[~test], public / "train.csv")
    lines = pd.DataFrame(notes, columns=["StudyInstanceUID", "label", "data"])
    known = lines["StudyInstanceUID"].isin(frame["StudyInstanceUID"][~test])
    write_csv(lines[known], public / "train_annotations.csv")
    sample = frame.loc[test, ["StudyInstanceUID"]].assign(**dict.fromkeys(graded, 0))
    write_csv(sample, public / "sample_submission.csv")
    write_csv(frame[test], private / "test.csv")


def _place(
    folder: Path, suffix: str, ids: pd.Series, test: np.ndarray, public: Path
) -> None:
    """Move the pictures of rows 0, 1, ... to train/ or test/ under their ids."""
    for part in ("train", "test"):
        (public / part).mkdir(parents=True, exist_ok=True)
    for k, (i, t) in enumerate(zip(ids, test, strict=True)):
        place = public / ("test" if t else "train") / f"{i}.{suffix}"
        (folder / f"{k}.{suffix}").rename(place)
    folder.rmdir()


def _chest(rng: np.random.Generator) -> tuple[Image.Image, np.ndarray]:
    """A grey thorax with two dark lungs, spine, ribs; and where its middle lies."""
    shift = rng.normal(0, 1.2, 2)
    pixels = 120 + 12 * smooth_noise(rng, (64, 64), 6)
    canvas = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(canvas)
    dx, dy = shift
    for side in (-1, 1):
        x = 32 + dx + side * 15
        draw.ellipse((x - 11, 10 + dy, x + 11, 54 + dy), fill=int(rng.integers(45, 75)))
        for k in range(5):
            box = (x - 14, 12 + 8 * k + dy, x + 14, 22 + 8 * k + dy)
            draw.arc(box, 200, 340, fill=95)
    draw.line((32 + dx, 0, 32 + dx, 63), fill=135, width=4)
    # The landmark: the windpipe forks.
    draw.line((32 + dx, 4, 32 + dx, 32 + dy), fill=85, width=2)
    for side in (-1, 1):
        draw.line((32 + dx, 32 + dy, 32 + dx + side * 6, 38 + dy), fill=85, width=2)
    return canvas, shift


def _tube(
    rng: np.random.Generator, family: str, tip: float, shift: np.ndarray
) -> list[tuple[float, float]]:
    dx, dy = shift
    sway = rng.normal(0, 0.6)
    if family == "ETT":
        return [(32 + dx + sway, 0), (32 + dx, 32 + dy + tip)]
    if family == "NGT":
        end = min(50 + dy - tip, 64) if tip < 20 else 64
        mid = 34 + dx + sway
        return [(mid, 0), (mid, min(38.0, end - 4)), (mid + 6 * (end > 42), end)]
    x = 22 + dx + sway
    return [(6 + sway, 8 + dy), (x, 14 + dy), (x + 1, 34 + dy + tip)]


SYNTHETIC = SyntheticData(
    generate,
    small=(700, 200),
    medium=(4000, 1000),
    scale="images 64x64",
)
SPLIT = SplitRule(group="PatientID", stratify=("ETT - Abnormal", "NGT - Abnormal"))
CARVE = TableLayout(
    test=None,
    id="StudyInstanceUID",
    by_id=("train_annotations.csv",),
    media=(Media("train", "test", "{}.jpg"),),
)
