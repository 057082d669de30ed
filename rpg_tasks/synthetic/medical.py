"""Medical images: ranzcr-clip, aptos2019, siim-isic, histopathologic."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from rpg_tasks.splits import stratified_choice
from rpg_tasks.synthetic.common import (
    hex_ids,
    image_bytes,
    numbered_ids,
    smooth_noise,
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


def ranzcr_clip(
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
    test = _whole_groups(rng, frame, "PatientID", "ETT - Abnormal", n_test)
    _place(private / "images", "jpg", frame["StudyInstanceUID"], test, public)
    graded = columns[:-1]
    write_csv(frame[~test], public / "train.csv")
    lines = pd.DataFrame(notes, columns=["StudyInstanceUID", "label", "data"])
    known = lines["StudyInstanceUID"].isin(frame["StudyInstanceUID"][~test])
    write_csv(lines[known], public / "train_annotations.csv")
    sample = frame.loc[test, ["StudyInstanceUID"]].assign(**dict.fromkeys(graded, 0))
    write_csv(sample, public / "sample_submission.csv")
    write_csv(frame[test], private / "test.csv")


def _whole_groups(
    rng: np.random.Generator, frame: pd.DataFrame, group: str, rare: str, n: int
) -> np.ndarray:
    """Mask of about `n` rows in whole groups, with `rare` in its share."""
    groups = frame.groupby(group, sort=True)[rare].max()
    share = round(n / len(frame) * len(groups))
    chosen = groups.index[stratified_choice(rng, groups, share)]
    return frame[group].isin(chosen).to_numpy()


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


def aptos2019(
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


def _retina(rng: np.random.Generator, grade: int) -> np.ndarray:
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


_SITES = ("torso", "lower extremity", "upper extremity", "head/neck", "palms/soles")


def siim_isic(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Lesions: ragged edge and mixed colours are malignant; age, sex, site add odds."""
    n = n_train + n_test
    patients = np.arange(n) // 5
    people = np.array(numbered_ids(rng, int(patients.max()) + 1, "IP_{:07d}", 10**7))
    age = np.clip(np.round(rng.normal(50, 14, patients.max() + 1) / 5) * 5, 15, 90)[
        patients
    ]
    male = (rng.random(patients.max() + 1) < 0.52)[patients]
    site = rng.choice(len(_SITES), n, p=(0.51, 0.25, 0.15, 0.06, 0.03))
    odds = 0.045 * (age - 50) + 0.35 * male + np.array((0, -0.2, 0.1, 0.9, 0.3))[site]
    score = odds + 1.7 * rng.normal(size=n)
    target = (score > np.quantile(score, 0.94)).astype(int)
    frame = pd.DataFrame(
        {
            "image_name": numbered_ids(rng, n, "ISIC_{:07d}", 10**7),
            "patient_id": people[patients],
            "sex": np.where(rng.random(n) < 0.01, "", np.where(male, "male", "female")),
            "age_approx": np.where(rng.random(n) < 0.01, np.nan, age),
            "anatom_site_general_challenge": np.array(_SITES)[site],
            "diagnosis": np.where(
                target, "melanoma", rng.choice(["unknown", "nevus"], n)
            ),
            "benign_malignant": np.where(target, "malignant", "benign"),
            "target": target,
        }
    )
    frame.loc[rng.random(n) < 0.02, "anatom_site_general_challenge"] = ""
    test = _whole_groups(rng, frame, "patient_id", "target", n_test)
    for i, y, t in zip(frame["image_name"], target, test, strict=True):
        place = public / "jpeg" / ("test" if t else "train") / f"{i}.jpg"
        write_file(place, image_bytes(_lesion(rng, bool(y)), "jpeg"))
    hidden = frame[test]
    write_csv(frame[~test], public / "train.csv")
    write_csv(hidden.iloc[:, :5], public / "test.csv")
    answers = hidden[["image_name", "target"]]
    write_csv(answers, private / "test.csv")
    write_csv(answers.assign(target=0), public / "sample_submission.csv")


def _lesion(rng: np.random.Generator, malignant: bool) -> np.ndarray:
    rough = np.clip(rng.normal(0.2 if malignant else 0.1, 0.06), 0, 0.5)
    mixed = np.clip(rng.normal(24 if malignant else 12, 6), 0, None)
    skin = np.array((225, 180, 160)) * rng.uniform(0.8, 1.08)
    mole = np.array((125, 80, 60)) * rng.uniform(0.7, 1.3)
    y, x = np.mgrid[:32, :32]
    centre, radius = rng.normal(15.5, 1.5, 2), rng.uniform(6, 11)
    angle = np.arctan2(y - centre[0], x - centre[1])
    waves = np.arange(2, 9)[:, None, None]
    phases = rng.uniform(0, 2 * np.pi, 7)[:, None, None]
    edge = radius * (1 + rough * np.cos(waves * angle + phases).sum(0) / 2)
    inside = 1 / (1 + np.exp(np.hypot(y - centre[0], x - centre[1]) - edge))
    colour = mole + mixed * np.stack(
        [smooth_noise(rng, (32, 32), 4) for _ in range(3)], -1
    )
    pixels = skin + inside[..., None] * (colour - skin)
    return pixels + rng.normal(0, 5, pixels.shape)


def histopathologic(
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


def _tissue(rng: np.random.Generator, positive: bool) -> np.ndarray:
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
