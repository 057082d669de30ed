"""The metrics of the 22 tasks: ``metric(truth, prediction) -> float``.

scikit-learn computes them. What is added are checks that make the verdict the same
under every supported scikit-learn: older versions score a mix of words and numbers,
newer ones return ``nan`` where older ones raise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn import metrics as sk

from rpg_tasks.submission import InvalidSubmission


def _undefined(why: str) -> InvalidSubmission:
    return InvalidSubmission(why, status="nan")


def _columns(table: pd.DataFrame) -> list[np.ndarray]:
    return [table.iloc[:, i].to_numpy() for i in range(table.shape[1])]


def _auc(truth: np.ndarray, score: np.ndarray, name: str) -> float:
    if truth.dtype.kind in "biuf" and np.unique(truth).size < 2:
        raise _undefined(
            f"the answers hold a single class of {name!r}: its ROC AUC is not defined"
        )
    return float(sk.roc_auc_score(truth, score))


def auc(truth: pd.DataFrame, prediction: pd.DataFrame) -> float:
    """Mean over the columns, matched by name, of the area under the ROC curve."""
    return float(
        np.average(
            [
                _auc(truth[name].to_numpy(), prediction[name].to_numpy(), name)
                for name in truth.columns
            ]
        )
    )


def auc_matrix(truth: pd.DataFrame, prediction: pd.DataFrame) -> float:
    """As ``auc``, with columns matched by *position*, as jigsaw-toxic's grader does."""
    if truth.shape[1] != prediction.shape[1]:
        raise InvalidSubmission(
            f"expected {truth.shape[1]} columns beside the id, got "
            f"{prediction.shape[1]}: {', '.join(map(str, prediction.columns))}"
        )
    # One array, so that a column of text makes every column text, as it does there.
    values = prediction.to_numpy()
    pairs = zip(_columns(truth), values.T, truth.columns, strict=True)
    return float(np.average([_auc(t, p, str(name)) for t, p, name in pairs]))


def _same_label_kind(truth: np.ndarray, label: np.ndarray) -> None:
    if truth.dtype != object and label.dtype == object:
        words = [value for value in label if isinstance(value, str)][:3]
        if words:
            raise InvalidSubmission(f"labels must be numbers, got {words}")


def accuracy(truth: pd.DataFrame, prediction: pd.DataFrame) -> float:
    """Share of rows whose label is right; ``2.0`` counts as ``2``."""
    (true,), (label,) = _columns(truth), _columns(prediction)
    _same_label_kind(true, label)
    return float(sk.accuracy_score(true, label))


def exact_match(truth: pd.DataFrame, prediction: pd.DataFrame) -> float:
    """Share of rows whose text is equal, character by character.

    scikit-learn's accuracy of two text columns is the same number, but sorts a million
    strings to find the classes first.
    """
    (true,), (text,) = _columns(truth), _columns(prediction)
    if true.shape != text.shape or not true.size:
        raise InvalidSubmission("no rows to compare")
    return float(np.mean(true == text))


def kappa(truth: pd.DataFrame, prediction: pd.DataFrame) -> float:
    """Cohen's kappa with quadratic weights over the labels seen on either side."""
    (true,), (label,) = _columns(truth), _columns(prediction)
    _same_label_kind(true, label)
    return float(sk.cohen_kappa_score(label, true, weights="quadratic"))


def log_loss(truth: pd.DataFrame, prediction: pd.DataFrame) -> float:
    """Mean negative log-probability (nats) of the true class, columns by name.

    Probabilities are clipped to [eps, 1 - eps] with eps = 2.2e-16: at most 36.04 a row.
    """
    return float(
        sk.log_loss(truth.to_numpy(), prediction[list(truth.columns)].to_numpy())
    )


def binary_log_loss(truth: pd.DataFrame, prediction: pd.DataFrame) -> float:
    """``log_loss`` of one column that holds the probability of class 1."""
    (true,), (probability,) = _columns(truth), _columns(prediction)
    if np.unique(true).size < 2:
        raise _undefined("the answers hold a single class: no binary log loss")
    return float(sk.log_loss(true, probability))


def rmse(truth: pd.DataFrame, prediction: pd.DataFrame) -> float:
    """Root mean squared error."""
    (true,), (value,) = _columns(truth), _columns(prediction)
    return float(sk.root_mean_squared_error(true, value))


def rmsle(truth: pd.DataFrame, prediction: pd.DataFrame) -> float:
    """Mean over the columns of the RMSE of ``log(1 + x)``; needs x > -1."""
    losses = []
    for name in truth.columns:
        true = truth[name].to_numpy(dtype=np.float64)
        value = prediction[name].to_numpy(dtype=np.float64)
        if (value <= -1.0).any():
            raise InvalidSubmission(f"{name} has values of -1 or less: no logarithm")
        losses.append(sk.root_mean_squared_error(np.log1p(true), np.log1p(value)))
    return float(np.mean(losses))


METRICS: dict[str, Callable[[pd.DataFrame, pd.DataFrame], float]] = {
    "auc": auc,
    "auc_matrix": auc_matrix,
    "accuracy": accuracy,
    "exact_match": exact_match,
    "kappa": kappa,
    "log_loss": log_loss,
    "binary_log_loss": binary_log_loss,
    "rmse": rmse,
    "rmsle": rmsle,
}
