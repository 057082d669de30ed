"""Plan: great-circle distance and hour, a ridge regression on part of the rows."""

import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge

train = pd.read_csv("input/labels.csv", nrows=10_000)
test = pd.read_csv("input/test.csv")
train = train[(train["fare_amount"] > 0) & (train["pickup_longitude"] < -70)]


def features(frame):
    dx = (frame["dropoff_longitude"] - frame["pickup_longitude"]) * 84.4
    dy = (frame["dropoff_latitude"] - frame["pickup_latitude"]) * 111.2
    km = np.minimum(np.hypot(dx, dy), 60)
    hour = frame["pickup_datetime"].str[11:13].astype(int)
    year = frame["pickup_datetime"].str[:4].astype(int)
    return np.c_[km, np.sqrt(km), year, (hour > 7) & (hour < 20)]


model = Ridge().fit(features(train), train["fare_amount"])
out = test[["key"]].assign(fare_amount=model.predict(features(test)))
out.to_csv("submission.csv", index=False)
