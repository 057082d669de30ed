"""Metered fares from distance, hour and year."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    SplitRule,
    SyntheticData,
    TableLayout,
    write_csv,
    write_file,
)

_RTF = r"{\rtf1\ansi Coupons are not part of the synthetic data.}"
_JFK = (-73.7822, 40.6441)


def generate(
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


SYNTHETIC = SyntheticData(
    generate,
    small=(30000, 1500),
    medium=(500000, 9914),
)
SPLIT = SplitRule()
CARVE = TableLayout(
    train="labels.csv",
    id="key",
    keep=("GCP-Coupons-Instructions.rtf",),
    plain_lines=True,
)
