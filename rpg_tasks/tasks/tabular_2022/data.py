"""A table of interactions and a string."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    SplitRule,
    SyntheticData,
    TableLayout,
    stratified_choice,
    write_csv,
)


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Linear part, two products, a threshold on a sum, and letters of a string."""
    n = n_train + n_test
    counts = {*range(7, 19), 29, 30}
    frame = pd.DataFrame({"id": np.arange(n)})
    for k in range(31):
        name = f"f_{k:02d}"
        if k == 27:
            letters = rng.integers(0, 20, (n, 10)) * (rng.random((n, 10)) < 0.6)
            flat = np.array(list("ABCDEFGHIJKLMNOPQRST"))[letters]
            frame[name] = ["".join(row) for row in flat]
        elif k in counts:
            frame[name] = rng.poisson({29: 0.4, 30: 0.8}.get(k, 2.2), n)
        else:
            frame[name] = rng.normal(0, 230 if k == 28 else 1, n)
    f = {c: frame[c].to_numpy() for c in frame if c != "f_27"}
    total = f["f_00"] + f["f_01"] + f["f_26"]
    weights = rng.normal(0, 0.22, 31) * (rng.random(31) < 0.6)
    logit = sum(
        w * (f[f"f_{k:02d}"] - f[f"f_{k:02d}"].mean()) / f[f"f_{k:02d}"].std()
        for k, w in enumerate(weights)
        if k != 27
    )
    logit = logit + 0.9 * f["f_02"] * f["f_21"] + 0.9 * f["f_05"] * f["f_22"]
    logit += 1.3 * (total > 2.5) - 1.3 * (total < -2.5) + 0.4 * f["f_20"]
    effect = rng.normal(0, 0.5, (10, 20)) * (rng.random((10, 1)) < 0.5)
    value = effect[np.arange(10), letters].sum(1)
    distinct = np.array([len(set(row)) for row in letters])
    logit += value - value.mean() + 0.35 * (distinct - distinct.mean())
    target = rng.random(n) < 1 / (1 + np.exp(-1.4 * logit))
    frame["target"] = target.astype(int)
    test = stratified_choice(rng, frame["target"], n_test)
    train = frame[~test].assign(id=np.arange(n_train))
    hidden = frame[test].assign(id=np.arange(n_train, n))
    write_csv(train, public / "train.csv")
    write_csv(hidden.drop(columns="target"), public / "test.csv")
    write_csv(hidden[["id"]].assign(target=0.5), public / "sample_submission.csv")
    write_csv(hidden, private / "test.csv")


SYNTHETIC = SyntheticData(
    generate,
    small=(8000, 1500),
    medium=(100000, 10000),
)
SPLIT = SplitRule(stratify=("target",))
CARVE = TableLayout(plain_lines=True)
