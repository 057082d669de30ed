"""A bandit log from a real question: which classifier, when its seconds count.

    python -m benchmarks.classifier_log --out=results/bandit/classifiers/log.csv

Arms are 20 classifiers of scikit-learn at their defaults, contexts its bundled data
sets at two training shares. Every arm is measured equally often in every context, on
fresh random splits: a log with uniform propensities. The reward is the test accuracy
above that of always answering the most frequent class (0 if below), and the seconds are
the CPU time of fitting and predicting on one thread. Nothing is downloaded.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import (
    datasets,
    discriminant_analysis,
    ensemble,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    svm,
    tree,
)
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

FIELDS = ("context", "arm", "reward", "seconds", "propensity", "accuracy")
SHARES = (0.2, 0.6)
DATA: dict[str, Callable[..., Any]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast-cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
#: Made anew for each measurement; those that want it get scaled features.
ARMS: dict[str, Callable[[int], Any]] = {
    "nearest-centroid": lambda seed: neighbors.NearestCentroid(),
    "gaussian-nb": lambda seed: naive_bayes.GaussianNB(),
    "bernoulli-nb": lambda seed: naive_bayes.BernoulliNB(),
    "decision-stump": lambda seed: tree.DecisionTreeClassifier(
        max_depth=1, random_state=seed
    ),
    "decision-tree": lambda seed: tree.DecisionTreeClassifier(random_state=seed),
    "extra-tree": lambda seed: tree.ExtraTreeClassifier(random_state=seed),
    "1-neighbour": lambda seed: neighbors.KNeighborsClassifier(1),
    "5-neighbours": lambda seed: neighbors.KNeighborsClassifier(5),
    "ridge": lambda seed: linear_model.RidgeClassifier(),
    "perceptron": lambda seed: linear_model.Perceptron(random_state=seed),
    "sgd-hinge": lambda seed: linear_model.SGDClassifier(random_state=seed),
    "logistic": lambda seed: linear_model.LogisticRegression(max_iter=200),
    "lda": lambda seed: discriminant_analysis.LinearDiscriminantAnalysis(),
    "linear-svm": lambda seed: svm.LinearSVC(random_state=seed),
    "rbf-svm": lambda seed: svm.SVC(),
    "random-forest": lambda seed: ensemble.RandomForestClassifier(random_state=seed),
    "extra-trees": lambda seed: ensemble.ExtraTreesClassifier(random_state=seed),
    "adaboost": lambda seed: ensemble.AdaBoostClassifier(random_state=seed),
    "gradient-boosting": lambda seed: ensemble.GradientBoostingClassifier(
        n_estimators=30, random_state=seed
    ),
    "mlp": lambda seed: neural_network.MLPClassifier(max_iter=60, random_state=seed),
}


def measure(name: str, share: float, arm: str, seed: int) -> dict[str, object]:
    """One row: an arm on a fresh split of a data set."""
    features, labels = DATA[name](return_X_y=True)
    parts = train_test_split(
        features, labels, train_size=share, stratify=labels, random_state=seed
    )
    train, test, train_labels, test_labels = parts
    model = make_pipeline(StandardScaler(), ARMS[arm](seed))
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        start = time.process_time()
        answers = model.fit(train, train_labels).predict(test)
        seconds = time.process_time() - start
    accuracy = float(np.mean(answers == test_labels))
    counts = np.bincount(train_labels)
    guess = float(np.mean(test_labels == counts.argmax()))
    return {
        "context": f"{name} {share:.0%}",
        "arm": arm,
        "reward": f"{max(accuracy - guess, 0.0):.4f}",
        "seconds": f"{seconds:.6f}",
        "propensity": 1 / len(ARMS),
        "accuracy": f"{accuracy:.4f}",
    }


def rows(repeats: int) -> Iterator[dict[str, object]]:
    """All measurements in a random order, so that no arm has a quiet machine alone."""
    cells = [
        (n, s, a, r) for n in DATA for s in SHARES for a in ARMS for r in range(repeats)
    ]
    for name, share, arm in {cell[:3] for cell in cells}:
        measure(name, share, arm, 0)  # imports and first allocations are not the arm's
    for k in np.random.default_rng(0).permutation(len(cells)):
        yield measure(*cells[k])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=32)
    args = parser.parse_args()
    start = time.process_time()
    partial = args.out.with_suffix(".partial")
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in rows(args.repeats):
            writer.writerow(row)
            file.flush()
    partial.replace(args.out)
    print(f"{args.out}: {time.process_time() - start:.0f} s of CPU time")


if __name__ == "__main__":
    main()
