"""Sentences of three authors with habits of their own."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    SplitRule,
    SyntheticData,
    TableLayout,
    numbered_ids,
    one_hot,
    pseudo_words,
    sentence,
    stratified_choice,
    token_lists,
    write_csv,
    zipf_weights,
)

AUTHORS = ("EAP", "HPL", "MWS")


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Three authors: one Zipf vocabulary, each author's use of a word is tilted.

    p_a(w) proportional to zipf(w) exp(N(0, 0.5)): weak evidence in many words, which a
    linear model over counts sums up and a tree on a few features cannot.
    """
    n = n_train + n_test
    words = pseudo_words(rng, 5000)
    base = zipf_weights(words.size)
    author = rng.choice(3, n, p=(0.4035, 0.2878, 0.3087))
    texts = np.empty(n, dtype=object)
    for a, mean_log in enumerate((2.95, 3.2, 3.1)):
        p = base * np.exp(rng.normal(0, 0.5, words.size))
        rows = np.flatnonzero(author == a)
        lengths = np.clip(rng.lognormal(mean_log, 0.5, rows.size), 4, 150).astype(int)
        tokens = token_lists(rng, words, p / p.sum(), lengths)
        texts[rows] = [_with_commas(rng, t) for t in tokens]
    frame = pd.DataFrame(
        {
            "id": numbered_ids(rng, n, "id{:05d}", 30000),
            "text": texts,
            "author": np.array(AUTHORS)[author],
        }
    )
    test = stratified_choice(rng, frame["author"], n_test)
    train, hidden = frame[~test], frame[test]
    write_csv(train, public / "train.csv")
    write_csv(hidden[["id", "text"]], public / "test.csv")
    sample = hidden[["id"]].assign(EAP=0.4034935, HPL=0.2878084, MWS=0.3086981)
    write_csv(sample, public / "sample_submission.csv")
    answers = one_hot(hidden["author"].to_numpy(), AUTHORS, id=hidden["id"].to_numpy())
    write_csv(answers, private / "test.csv")


def _with_commas(rng: np.random.Generator, tokens: list[str]) -> str:
    marks = rng.random(len(tokens)) < 0.06
    return sentence([t + "," if m else t for t, m in zip(tokens, marks, strict=True)])


SYNTHETIC = SyntheticData(
    generate,
    small=(2000, 400),
    medium=(17621, 1958),
)
SPLIT = SplitRule(stratify=("author",))
CARVE = TableLayout(label="author")
