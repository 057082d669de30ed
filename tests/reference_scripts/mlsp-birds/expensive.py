"""Plan: spectrogram statistics and the histogram, extra-trees for every species."""

import wave

import numpy as np
import pandas as pd
from scipy.signal import spectrogram
from sklearn.ensemble import ExtraTreesClassifier

names = pd.read_csv("input/essential_data/rec_id2filename.txt").set_index("rec_id")[
    "filename"
]
labels, bins = {}, {}
for line in (
    open("input/essential_data/rec_labels_test_hidden.txt").read().split("\n")[1:]
):
    if line:
        first, *rest = line.split(",")
        labels[int(first)] = rest
for line in (
    open("input/supplemental_data/histogram_of_segments.txt").read().split("\n")[1:]
):
    if line:
        values = [float(v) for v in line.split(",")]
        bins[int(values[0])] = values[1:]


def features(i):
    with wave.open(f"input/essential_data/src_wavs/{names[i]}.wav") as handle:
        rate = handle.getframerate()
        sound = np.frombuffer(handle.readframes(handle.getnframes()), "<i2")
    power = np.log(
        spectrogram(sound.astype(float), rate, nperseg=256, noverlap=192)[2] + 1
    )
    power -= np.median(power, axis=1, keepdims=True)
    power = power[: power.shape[0] // 2 * 2].reshape(-1, 2, power.shape[1]).mean(1)
    return np.r_[np.quantile(power, (0.8, 0.95, 1.0), axis=1).ravel(), np.sqrt(bins[i])]


train = [i for i, heard in labels.items() if heard != ["?"]]
test = [i for i, heard in labels.items() if heard == ["?"]]
x = np.array([features(i) for i in train])
z = np.array([features(i) for i in test])
rows = []
for species in range(19):
    y = np.array([str(species) in labels[i] for i in train])
    p = np.zeros(len(test))
    if y.any():
        model = ExtraTreesClassifier(500, max_features=0.2, random_state=0)
        p = model.fit(x, y).predict_proba(z)[:, 1]
    rows += [(100 * i + species, q) for i, q in zip(test, p)]
pd.DataFrame(rows, columns=["Id", "Probability"]).to_csv("submission.csv", index=False)
