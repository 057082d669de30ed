"""The callable contract: the script's ``load`` and ``logits``, checked for peeking.

A script of any architecture defines ``load(path)`` and ``logits(model, tokens)``,
[batch, length] -> [batch, length, vocabulary]. Two fresh workers call them:

A. scores all validation rows, in a secret order;
B. sees prefixes of a secret sample of them, each going on with other text, among rows
   of train text. Up to the place where a prefix ends its logits must be worker A's.

A model that looks at later tokens, learns from the rows that it scores, or keeps what
it has seen, answers B differently. **Its limit:** a table of n-gram counts is an honest
function of the past and passes (trigram counts of this text: 2.2 nats in 0.2 s). Only
the declared contract refuses it.
"""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np

from rpg_tasks.speedrun.declared import BATCH, Refused, nats

#: Rows of the sample that worker B sees, and rows of train text among them.
SAMPLE, DECOYS = 128, 128
#: Largest difference of log-probabilities: float32 sums in another order, no more.
TOLERANCE = 0.02
#: Validation may not be this far below train text, nats.
CANARY = 0.25


class Exam(NamedTuple):
    """What the two workers see, and how to read it.

    Attributes:
        a: rows of worker A, [N + DECOYS, length], train rows among them.
        targets: of the rows of A.
        train: whether a row of A is of train text.
        b: rows of worker B.
        sample: row of A that each row of B begins like; -1 for a decoy.
        cuts: tokens of the prefix, per row of B.
    """

    a: np.ndarray
    targets: np.ndarray
    train: np.ndarray
    b: np.ndarray
    sample: np.ndarray
    cuts: np.ndarray


def make_exam(rows: np.ndarray, train: np.ndarray, rng: np.random.Generator) -> Exam:
    """Draw an exam.

    Args:
        rows: of validation, [N, length + 1].
        train: tokens of the train text.
        rng: secret; all randomness.
    """
    length = rows.shape[1] - 1

    def train_rows(number: int) -> np.ndarray:
        places = rng.integers(0, len(train) - length, number)
        return train[places[:, None] + np.arange(length + 1)].astype(np.int32)

    everything = np.concatenate([rows, train_rows(DECOYS)])
    order = rng.permutation(len(everything))
    shuffled = everything[order]
    of_train = order >= len(rows)
    chosen = rng.choice(np.flatnonzero(~of_train), min(SAMPLE, len(rows)), False)
    cuts = rng.integers(2, length, len(chosen))
    mixed = shuffled[chosen, :-1].copy()
    for row, cut in zip(mixed, cuts, strict=True):
        row[cut:] = _other_future(train, row, int(cut), rng)
    decoys = train_rows(DECOYS)[:, :-1]
    b = np.concatenate([mixed, decoys])
    sample = np.concatenate([chosen, np.full(len(decoys), -1)])
    cuts = np.concatenate([cuts, np.zeros(len(decoys), int)])
    again = rng.permutation(len(b))
    return Exam(
        shuffled[:, :-1].copy(), shuffled[:, 1:], of_train,
        b[again], sample[again], cuts[again],
    )  # fmt: skip


def _other_future(
    train: np.ndarray, row: np.ndarray, cut: int, rng: np.random.Generator
) -> np.ndarray:
    """Train text that could go on from a prefix, but with another next token.

    It follows the same last token where such a place is found, so that the seam cannot
    be told from text.
    """
    rest = len(row) - cut
    places = rng.integers(1, len(train) - rest, 4096)
    fits = (train[places - 1] == row[cut - 1]) & (train[places] != row[cut])
    other = train[places] != row[cut]
    good = places[fits] if fits.any() else places[other]
    start = int(good[0]) if len(good) else int(places[0])
    return train[start : start + rest]


def read_logits(data: bytes, rows: np.ndarray, vocabulary: int) -> np.ndarray:
    """A worker's logits for its rows.

    Raises:
        Refused: other shape or type, or not finite.
    """
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError):
        raise Refused("the logits cannot be read") from None
    if array.shape != (*rows.shape, vocabulary) or array.dtype != np.float32:
        raise Refused(f"the logits have the shape {array.shape}")
    if not np.isfinite(array).all():
        raise Refused("the logits are not finite")
    found: np.ndarray = array
    return found


def judge(exam: Exam, a: np.ndarray, b: np.ndarray) -> float:
    """The validation loss, if worker B agrees with worker A.

    Args:
        exam: what they saw.
        a: logits of worker A.
        b: logits of worker B.

    Raises:
        Refused: they differ, or validation is far easier than train text.
    """
    losses = np.concatenate(
        [
            nats(a[at : at + BATCH], exam.targets[at : at + BATCH])
            for at in range(0, len(a), BATCH)
        ]
    )
    worst, bad = 0.0, 0
    for row, (of, cut) in enumerate(zip(exam.sample, exam.cuts, strict=True)):
        if of < 0:
            continue
        gap = np.abs(_log_softmax(a[of, :cut]) - _log_softmax(b[row, :cut])).max()
        worst, bad = max(worst, float(gap)), bad + (gap > TOLERANCE)
    if bad:
        raise Refused(
            f"a fresh worker gives other predictions for the same prefix (in {bad} of "
            f"{(exam.sample >= 0).sum()} rows, by up to {worst:.3g} nats): the model "
            "sees later tokens, or changes with the rows that it scores"
        )
    loss, of_train = _mean(losses[~exam.train]), _mean(losses[exam.train])
    if loss < of_train - CANARY:
        raise Refused(
            f"the loss is {loss:.3f} on validation and {of_train:.3f} on train text: "
            "the model knows the validation text"
        )
    return loss


def _mean(losses: np.ndarray) -> float:
    return float(losses.mean(dtype=np.float64))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    found: np.ndarray = np.maximum(x - np.log(np.exp(x).sum(-1, keepdims=True)), -30.0)
    return found
