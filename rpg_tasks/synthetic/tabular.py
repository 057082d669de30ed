"""Tabular tasks: tabular-2021 (cover types), tabular-2022 (interactions), nyc-taxi."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.splits import stratified_choice
from rpg_tasks.synthetic.common import write_csv, write_file

_HILLSHADE = {"Hillshade_9am": 0.9, "Hillshade_Noon": 3.1, "Hillshade_3pm": 5.0}

# Cover types from low to high ground, with the shares of the competition.
_BELTS = ((3, 0.049), (6, 0.004), (4, 0.0006), (2, 0.5654), (1, 0.3655), (7, 0.0155))


def tabular_2021(
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


def tabular_2022(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Linear part, two products, a threshold on a sum, and letters of a string."""
    n = n_train + n_test
    counts = {*range(7, 19), 29, 30}
    frame = pd.DataFrame({"id": np.arange(n)})
    for k in range(31):
        name = f"f_{k:02d}"
        if k == 27:
            letters = rng.integers(0, 20, (n, 10)) * (rng.random((n, 10)) < 0.6)
            flat = np.array(list("ABCDEFGHIJKLMNOPQRST"))[letters]
            frame[name] = ["".join(row) for row in flat]
        elif k in counts:
            frame[name] = rng.poisson({29: 0.4, 30: 0.8}.get(k, 2.2), n)
        else:
            frame[name] = rng.normal(0, 230 if k == 28 else 1, n)
    f = {c: frame[c].to_numpy() for c in frame if c != "f_27"}
    total = f["f_00"] + f["f_01"] + f["f_26"]
    weights = rng.normal(0, 0.22, 31) * (rng.random(31) < 0.6)
    logit = sum(
        w * (f[f"f_{k:02d}"] - f[f"f_{k:02d}"].mean()) / f[f"f_{k:02d}"].std()
        for k, w in enumerate(weights)
        if k != 27
    )
    logit = logit + 0.9 * f["f_02"] * f["f_21"] + 0.9 * f["f_05"] * f["f_22"]
    logit += 1.3 * (total > 2.5) - 1.3 * (total < -2.5) + 0.4 * f["f_20"]
    effect = rng.normal(0, 0.5, (10, 20)) * (rng.random((10, 1)) < 0.5)
    value = effect[np.arange(10), letters].sum(1)
    distinct = np.array([len(set(row)) for row in letters])
    logit += value - value.mean() + 0.35 * (distinct - distinct.mean())
    target = rng.random(n) < 1 / (1 + np.exp(-1.4 * logit))
    frame["target"] = target.astype(int)
    test = stratified_choice(rng, frame["target"], n_test)
    train = frame[~test].assign(id=np.arange(n_train))
    hidden = frame[test].assign(id=np.arange(n_train, n))
    write_csv(train, public / "train.csv")
    write_csv(hidden.drop(columns="target"), public / "test.csv")
    write_csv(hidden[["id"]].assign(target=0.5), public / "sample_submission.csv")
    write_csv(hidden, private / "test.csv")


_RTF = r"{\rtf1\ansi Coupons are not part of the synthetic data.}"
_JFK = (-73.7822, 40.6441)


def nyc_taxi(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Metered fares: distance, hour, year and a flat airport fare; some broken rows.

    The training file is called labels.csv, as in the prepared competition.
    """
    n = n_train + n_test
    ends = rng.normal((-73.982, 40.753), (0.022, 0.022), (2, n, 2))
    far = rng.random(n) < 0.12
    ends[1, far] += rng.normal(0, 0.08, (int(far.sum()), 2))
    airport = rng.random(n) < 0.04
    side = rng.integers(0, 2, n)
    ends[side[airport], np.flatnonzero(airport)] = _JFK + rng.normal(
        0, 0.004, (int(airport.sum()), 2)
    )
    dx, dy = (ends[1] - ends[0]).T * np.array([[84.4], [111.2]])
    km = 1.25 * (np.abs(dx * 0.87 + dy * 0.49) + np.abs(dy * 0.87 - dx * 0.49)) / 1.2
    when = pd.Timestamp("2009-01-01") + pd.to_timedelta(
        rng.integers(0, int(6.45 * 365 * 86400), n), unit="s"
    )
    hour, year = when.hour.to_numpy(), when.year.to_numpy()
    working = when.day_of_week.to_numpy() < 5
    rush = working & (hour >= 8) & (hour < 20)
    night = (hour >= 20) | (hour < 6)
    raised = year + when.month.to_numpy() / 12 > 2012.7
    rate = np.where(raised, 1.65, 1.38) * np.where(rush, 1.22, 1.0)
    fare = 2.5 + rate * km * rng.lognormal(0, 0.13, n) + 0.5 * night + 1.0 * rush
    fare = np.where(airport & (km > 12), np.where(raised, 52.0, 45.0), fare)
    fare = np.clip(np.round(fare * 2) / 2, 2.5, 150)
    broken = rng.random(n)
    fare[broken < 0.0005] *= -1
    ends[:, broken > 0.99] = 0.0
    stamp = when.strftime("%Y-%m-%d %H:%M:%S")
    tail = rng.integers(1, 8, n)
    frame = pd.DataFrame(
        {
            "key": [f"{s}.{k:07d}" for s, k in zip(stamp, tail, strict=True)],
            "fare_amount": fare,
            "pickup_datetime": stamp + " UTC",
            "pickup_longitude": ends[0, :, 0].round(6),
            "pickup_latitude": ends[0, :, 1].round(6),
            "dropoff_longitude": ends[1, :, 0].round(6),
            "dropoff_latitude": ends[1, :, 1].round(6),
            "passenger_count": rng.choice(
                7, n, p=(0.01, 0.69, 0.15, 0.05, 0.02, 0.06, 0.02)
            ),
        }
    ).drop_duplicates("key", ignore_index=True)
    test = np.zeros(len(frame), dtype=bool)
    test[
        rng.choice(np.flatnonzero(frame["fare_amount"] > 0), n_test, replace=False)
    ] = True
    hidden = frame[test]
    write_csv(frame[~test], public / "labels.csv")
    write_csv(hidden.drop(columns="fare_amount"), public / "test.csv")
    sample = hidden[["key"]].assign(fare_amount=11.35)
    write_csv(sample, public / "sample_submission.csv")
    write_file(public / "GCP-Coupons-Instructions.rtf", _RTF.encode())
    write_csv(hidden, private / "test.csv")
