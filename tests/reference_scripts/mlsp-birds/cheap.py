"""Plan: the histogram of segments that comes with the data, one linear model a species."""

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

labels = {}
for line in (
    open("input/essential_data/rec_labels_test_hidden.txt").read().split("\n")[1:]
):
    if line:
        first, *rest = line.split(",")
        labels[int(first)] = rest
bins = {}
for line in (
    open("input/supplemental_data/histogram_of_segments.txt").read().split("\n")[1:]
):
    if line:
        values = [float(v) for v in line.split(",")]
        bins[int(values[0])] = values[1:]
train = [i for i, heard in labels.items() if heard != ["?"]]
test = [i for i, heard in labels.items() if heard == ["?"]]
x, z = np.sqrt([bins[i] for i in train]), np.sqrt([bins[i] for i in test])
rows = []
for species in range(19):
    y = np.array([str(species) in labels[i] for i in train])
    if y.any():
        p = LogisticRegression(C=3.0).fit(x, y).predict_proba(z)[:, 1]
    else:
        p = np.zeros(len(test))
    rows += [(100 * i + species, q) for i, q in zip(test, p)]
pd.DataFrame(rows, columns=["Id", "Probability"]).to_csv("submission.csv", index=False)
