"""Plan: tiny thumbnails of the middle and a colour summary, shrunken class means."""

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

train = pd.read_csv("input/labels.csv")
out = pd.read_csv("input/sample_submission.csv")


def features(path):
    picture = Image.open(path).convert("RGB").resize((48, 48))
    middle = np.asarray(
        picture.crop((10, 8, 38, 42)).resize((6, 7), Image.Resampling.BOX)
    )
    pixels = np.asarray(picture)[16:40, 14:34].reshape(-1, 3)
    return np.r_[middle.ravel(), np.quantile(pixels, (0.2, 0.5, 0.8), axis=0).ravel()]


x = np.array([features(f"input/train/{i}.jpg") for i in train["id"]]).astype(float)
z = np.array([features(f"input/test/{i}.jpg") for i in out["id"]]).astype(float)
model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(x, train["breed"])
p = model.predict_proba(z) ** 0.5
p = 0.97 * p / p.sum(1, keepdims=True) + 0.03 / p.shape[1]
out[list(model.classes_)] = p
out.to_csv("submission.csv", index=False)
