"""Plan: predict every pixel from its 7x7 surroundings with boosted trees."""

import os

import numpy as np
import pandas as pd
from PIL import Image
from scipy.ndimage import median_filter
from sklearn.ensemble import HistGradientBoostingRegressor


def load(path):
    return np.asarray(Image.open(path).convert("L")) / 255.0


def features(page):
    padded = np.pad(page, 3, mode="reflect")
    h, w = page.shape
    shifts = [padded[a : a + h, b : b + w] for a in range(7) for b in range(7)]
    wide = [median_filter(page, 9), median_filter(page, 17)]
    return np.stack([s.ravel() for s in [*shifts, *wide]], 1)


train = sorted(os.listdir("input/train"))
x = np.concatenate([features(load(f"input/train/{n}")) for n in train])
y = np.concatenate([load(f"input/train_cleaned/{n}").ravel() for n in train])
model = HistGradientBoostingRegressor(max_iter=400, learning_rate=0.1, random_state=0)
model.fit(x, y)
parts = []
for name in sorted(os.listdir("input/test")):
    page = load(f"input/test/{name}")
    rows, columns = np.indices(page.shape) + 1
    ids = [f"{name[:-4]}_{r}_{c}" for r, c in zip(rows.ravel(), columns.ravel())]
    value = model.predict(features(page)).clip(0, 1)
    parts.append(pd.DataFrame({"id": ids, "value": value}))
pd.concat(parts).to_csv("submission.csv", index=False)
