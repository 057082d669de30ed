"""Plan: match up-sweep templates on a fine spectrogram, then a large forest."""

import zipfile

import numpy as np
import pandas as pd
from scipy.signal import correlate, spectrogram
from sklearn.ensemble import ExtraTreesClassifier

rate = 2000
templates = []
for low in (85, 100):
    for high in (180, 205):
        for seconds in (0.35, 0.5, 0.6):
            for a, b in ((low, high), (high, low)):
                f = np.linspace(a, b, int(rate * seconds))
                phase = 2 * np.pi * np.cumsum(f) / rate
                templates.append(np.exp(1j * phase) * np.hanning(f.size))


def features(sound):
    sound = sound - sound.mean()
    power = spectrogram(sound, rate, nperseg=200, noverlap=150)[2][5:40]
    level = np.log(power + 1e-3)
    level -= np.median(level, axis=1, keepdims=True)
    match = [np.abs(correlate(sound, t, "same")).max() for t in templates]
    return np.r_[
        level.max(1),
        level.std(1),
        level[::2].ravel(),
        np.log(match) - np.log(sound.std()),
    ]


def load(path):
    names, rows = [], []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            data = archive.read(name)
            start = data.index(b"SSND") + 16
            sound = np.frombuffer(
                data[start : start + 2 * ((len(data) - start) // 2)], ">i2"
            )
            names.append(name.split("/")[-1])
            rows.append(features(sound.astype(float)))
    return names, np.array(rows)


names, x = load("input/train2.zip")
y = [int(n.endswith("_1.aif")) for n in names]
model = ExtraTreesClassifier(800, min_samples_leaf=2, random_state=0).fit(x, y)
names, z = load("input/test2.zip")
p = model.predict_proba(z)[:, 1]
pd.DataFrame({"clip": names, "probability": p}).to_csv("submission.csv", index=False)
