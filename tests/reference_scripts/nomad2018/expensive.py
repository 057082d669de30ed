"""Plan: read every geometry file, measure how far atoms sit from a grid, two forests."""

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesRegressor

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")


def cell(part, i):
    place, edges = [], []
    for line in open(f"input/{part}/{i}/geometry.xyz"):
        words = line.split()
        if words[0] == "atom":
            place.append([float(v) for v in words[1:4]])
        elif words[0] == "lattice_vector":
            edges.append([float(v) for v in words[1:4]])
    place = np.array(place)
    gaps = np.linalg.norm(place[:, None] - place[None], axis=-1)
    near = np.sort(gaps + 1e9 * np.eye(len(place)), axis=1)[:, :4]
    grid = place / np.diag(edges) * (2, 5, max(len(place) // 10, 1))
    off = (grid % 1 - 0.5) * np.diag(edges) / (2, 5, max(len(place) // 10, 1))
    return [*near.mean(0), *near.std(0), np.sqrt((off**2).mean()), np.abs(off).max()]


def features(frame, part):
    extra = np.array([cell(part, i) for i in frame["id"]])
    return np.hstack([frame[list(test.columns[1:])], extra])


x, z = features(train, "train"), features(test, "test")
out = test[["id"]].copy()
for target in ("formation_energy_ev_natom", "bandgap_energy_ev"):
    model = ExtraTreesRegressor(500, random_state=0, min_samples_leaf=2)
    model.fit(x, np.log1p(train[target]))
    out[target] = np.expm1(model.predict(z)).clip(0)
out.to_csv("submission.csv", index=False)
