"""Plan: colour quantiles relative to the picture's own tint, ridge, rounded."""

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")


def features(path):
    pixels = np.asarray(Image.open(path).convert("RGB").resize((64, 64))).reshape(-1, 3)
    inside = pixels[pixels.sum(1) > 60].astype(float)
    q = np.quantile(inside, (0.01, 0.03, 0.06, 0.5, 0.94, 0.97, 0.99), axis=0)
    return np.r_[(q / q[3]).ravel(), inside.std(0) / q[3]]


x = np.array([features(f"input/train_images/{i}.png") for i in train["id_code"]])
z = np.array([features(f"input/test_images/{i}.png") for i in test["id_code"]])
model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 3, 6)))
guess = model.fit(x, train["diagnosis"]).predict(z)
test["diagnosis"] = np.clip(np.rint(guess), 0, 4).astype(int)
test.to_csv("submission.csv", index=False)
