"""Skin lesions with the patient's age, sex and site."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    Media,
    Pixels,
    SplitRule,
    SyntheticData,
    TableLayout,
    image_bytes,
    numbered_ids,
    smooth_noise,
    whole_groups,
    write_csv,
    write_file,
)

_SITES = ("torso", "lower extremity", "upper extremity", "head/neck", "palms/soles")


def generate(
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
    test = whole_groups(rng, frame, "patient_id", "target", n_test)
    for i, y, t in zip(frame["image_name"], target, test, strict=True):
        place = public / "jpeg" / ("test" if t else "train") / f"{i}.jpg"
        write_file(place, image_bytes(_lesion(rng, bool(y)), "jpeg"))
    hidden = frame[test]
    write_csv(frame[~test], public / "train.csv")
    write_csv(hidden.iloc[:, :5], public / "test.csv")
    answers = hidden[["image_name", "target"]]
    write_csv(answers, private / "test.csv")
    write_csv(answers.assign(target=0), public / "sample_submission.csv")


def _lesion(rng: np.random.Generator, malignant: bool) -> Pixels:
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
    noisy: Pixels = pixels + rng.normal(0, 5, pixels.shape)
    return noisy


SYNTHETIC = SyntheticData(
    generate,
    small=(1500, 400),
    medium=(8000, 2000),
    scale="images 32x32; no DICOM and no TFRecord copies of them; 6 % positive",
)
SPLIT = SplitRule(group="patient_id", stratify=("target",))
CARVE = TableLayout(
    id="image_name",
    answer_columns=("image_name", "target"),
    media=(
        Media("jpeg/train", "jpeg/test", "{}.jpg"),
        Media("train", "test", "{}.dcm", optional=True),
    ),
)
# The TFRecords were cut from the original training records: those of the test rows
# still hold the target, and MLE-Bench leaves them in the public folder.
TELLTALE = ("tfrecords",)
