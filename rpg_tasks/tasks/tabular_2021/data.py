"""Cover types: belts of a score that bends with the ground."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    SplitRule,
    SyntheticData,
    TableLayout,
    stratified_choice,
    write_csv,
)

_HILLSHADE = {"Hillshade_9am": 0.9, "Hillshade_Noon": 3.1, "Hillshade_3pm": 5.0}
# Cover types from low to high ground, with the shares of the competition.
_BELTS = ((3, 0.049), (6, 0.004), (4, 0.0006), (2, 0.5654), (1, 0.3655), (7, 0.0155))


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Seven cover types: belts of a score that bends with elevation, soil and water.

    One class has a single row, as in the competition (it stays in the training part).
    """
    n = n_train + n_test
    elevation = rng.normal(2950, 280, n)
    aspect, slope = rng.uniform(0, 360, n), rng.gamma(2.5, 6, n)
    water, rise = rng.gamma(1.4, 190, n), rng.normal(46, 58, n)
    road, fire = rng.gamma(2, 1100, n), rng.gamma(2.2, 900, n)
    frame = pd.DataFrame(
        {
            "Elevation": elevation,
            "Aspect": aspect,
            "Slope": slope,
            "Horizontal_Distance_To_Hydrology": water,
            "Vertical_Distance_To_Hydrology": rise,
            "Horizontal_Distance_To_Roadways": road,
        }
    )
    light = np.radians(aspect)
    for name, phase in _HILLSHADE.items():
        frame[name] = np.clip(210 - slope * np.cos(light - phase) * 1.5, 0, 254)
    frame["Horizontal_Distance_To_Fire_Points"] = fire
    frame = frame.round().astype(int)
    area = (elevation + rng.normal(0, 250, n) > 2800) + 2 * (rng.random(n) < 0.4)
    soil = np.clip((elevation - 2000) / 50 + rng.normal(0, 5, n), 0, 39).astype(int)
    for k in range(4):
        frame[f"Wilderness_Area{k + 1}"] = (area == k).astype(int)
    for k in range(40):
        frame[f"Soil_Type{k + 1}"] = (soil == k).astype(int)
    score = (
        (elevation - 2950) / 280
        + rng.normal(0, 0.35, 40)[soil]
        + np.array([0.0, 0.25, -0.35, 0.4])[area]
        + 0.6 * np.tanh((water - 250) / 120) * np.where(elevation > 3000, 1, -1)
        + 0.35 * np.cos(light) * (slope > 14)
        + 0.3 * np.sign(road - 1900) * np.sign(fire - 1700)
        + rng.normal(0, 0.12, n)
    )
    shares = np.cumsum([share for _, share in _BELTS])
    belt = np.searchsorted(np.quantile(score, shares[:-1]), score)
    cover = np.array([kind for kind, _ in _BELTS])[belt]
    cover[rng.integers(n)] = 5
    frame.insert(0, "Id", np.arange(n))
    frame["Cover_Type"] = cover
    test = stratified_choice(rng, frame["Cover_Type"], n_test)
    hidden = frame[test].sample(frac=1.0, random_state=rng)
    write_csv(frame[~test].sample(frac=1.0, random_state=rng), public / "train.csv")
    write_csv(hidden.drop(columns="Cover_Type"), public / "test.csv")
    write_csv(hidden[["Id"]].assign(Cover_Type=2), public / "sample_submission.csv")
    write_csv(hidden, private / "test.csv")


SYNTHETIC = SyntheticData(
    generate,
    small=(20000, 2000),
    medium=(200000, 20000),
)
SPLIT = SplitRule(stratify=("Cover_Type",))
CARVE = TableLayout(id="Id", plain_lines=True)
