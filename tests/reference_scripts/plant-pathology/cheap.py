"""Plan: share of orange, olive and green pixels, one regression over the four classes."""

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

train = pd.read_csv("input/train.csv")
out = pd.read_csv("input/sample_submission.csv")
classes = list(out.columns[1:])


def features(i):
    picture = Image.open(f"input/images/{i}.jpg").convert("RGB").resize((64, 48))
    pixels = np.asarray(picture).reshape(-1, 3).astype(float)
    mixed = pixels @ [[1, 0.33], [-1, 0.33], [0, 0.33]]
    counts = np.histogram2d(mixed[:, 0], mixed[:, 1], (8, 6), ((-90, 110), (20, 210)))[
        0
    ]
    return np.sqrt(counts.ravel())


x = np.array([features(i) for i in train["image_id"]])
z = np.array([features(i) for i in out["image_id"]])
model = make_pipeline(StandardScaler(), LogisticRegression(C=0.05, max_iter=300))
model.fit(x, train[classes].to_numpy().argmax(1))
out[classes] = model.predict_proba(z)
out.to_csv("submission.csv", index=False)
