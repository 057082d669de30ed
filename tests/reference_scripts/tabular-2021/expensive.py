"""Plan: gradient boosting on all columns; the single row of class 5 is left out."""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")
train = train[train["Cover_Type"] != 5]


def features(frame):
    soil = frame.filter(like="Soil_Type").to_numpy().argmax(1)
    area = frame.filter(like="Wilderness").to_numpy().argmax(1)
    keep = frame.drop(columns=["Id", "Cover_Type"], errors="ignore")
    keep = keep[[c for c in keep if not c.startswith(("Soil", "Wild"))]].copy()
    keep["soil"], keep["area"] = soil, area
    keep["north"] = np.cos(np.radians(keep["Aspect"]))
    return keep


model = HistGradientBoostingClassifier(
    max_iter=150,
    early_stopping=False,
    learning_rate=0.06,
    min_samples_leaf=40,
    categorical_features=["soil", "area"],
    random_state=0,
)
model.fit(features(train), train["Cover_Type"])
out = test[["Id"]].assign(Cover_Type=model.predict(features(test)))
out.to_csv("submission.csv", index=False)
