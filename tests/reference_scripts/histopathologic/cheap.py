"""Plan: darkness of the centre, a logistic regression."""

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

train = pd.read_csv("input/train_labels.csv")
out = pd.read_csv("input/sample_submission.csv")


def features(path):
    pixels = np.asarray(Image.open(path)).astype(float)
    k = len(pixels) // 3
    centre = pixels[k : 2 * k, k : 2 * k].reshape(-1, 3)
    return np.r_[centre.mean(0), centre.std(0), pixels.mean((0, 1))]


x = np.array([features(f"input/train/{i}.tif") for i in train["id"]])
z = np.array([features(f"input/test/{i}.tif") for i in out["id"]])
model = make_pipeline(StandardScaler(), LogisticRegression())
out["label"] = model.fit(x, train["label"]).predict_proba(z)[:, 1]
out.to_csv("submission.csv", index=False)
