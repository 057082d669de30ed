"""Comments with six correlated labels."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    SplitRule,
    SyntheticData,
    TableLayout,
    hex_ids,
    pseudo_words,
    sentence,
    stratified_choice,
    token_lists,
    write_csv,
    zipf_weights,
)

TOXIC = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Six correlated labels, one lexicon each; a third of the hits are disguised."""
    n = n_train + n_test
    words = pseudo_words(rng, 4000)
    toxic = rng.random(n) < 0.12
    share = {"severe_toxic": 0.22, "obscene": 0.5, "threat": 0.25}
    share |= {"insult": 0.5, "identity_hate": 0.22}
    labels = {"toxic": toxic}
    labels |= {name: toxic & (rng.random(n) < p) for name, p in share.items()}
    lengths = np.clip(rng.lognormal(3.2, 0.8, n), 4, 200).astype(int)
    bodies = token_lists(rng, words, zipf_weights(words.size), lengths)
    for name in TOXIC:
        # The seed of a lexicon is its own, so that lexicons differ in their stems.
        lexicon = np.array(
            [w + name[0] + name[-1] for w in pseudo_words(rng, 90, (2, 3))],
            dtype=object,
        )
        p = zipf_weights(lexicon.size, 0.9)
        present = labels[name]
        counts = np.where(present, 1 + rng.poisson(0.7, n), rng.random(n) < 0.03)
        for row in np.flatnonzero(counts):
            for word in rng.choice(lexicon, counts[row], p=p):
                spot = rng.integers(0, len(bodies[row]) + 1)
                bodies[row].insert(spot, _disguised(rng, str(word)))
    frame = pd.DataFrame({"id": hex_ids(rng, n, 16)})
    frame["comment_text"] = [sentence(b, rng.choice([".", "!", "\n"])) for b in bodies]
    for name in TOXIC:
        frame[name] = labels[name].astype(int)
    # Rare labels first: every column needs both classes among the scored test rows.
    rarity = frame["threat"] + 2 * frame["severe_toxic"] + 4 * frame["identity_hate"]
    test = stratified_choice(rng, rarity + 8 * frame["toxic"], n_test)
    hidden = frame[test].copy()
    write_csv(frame[~test], public / "train.csv")
    write_csv(hidden[["id", "comment_text"]], public / "test.csv")
    sample = hidden[["id"]].assign(**dict.fromkeys(TOXIC, 0.5))
    write_csv(sample, public / "sample_submission.csv")
    unscored = stratified_choice(rng, rarity[test], int(0.4 * n_test))
    hidden.loc[unscored, list(TOXIC)] = -1
    write_csv(hidden[["id", *TOXIC]], private / "test.csv")


def _disguised(rng: np.random.Generator, word: str) -> str:
    if rng.random() > 0.33:
        return word
    at = int(rng.integers(1, len(word)))
    return word[:at] + str(rng.choice(["*", word[at], "-", "."])) + word[at:]


SYNTHETIC = SyntheticData(
    generate,
    small=(8000, 2000),
    medium=(30000, 10000),
)
SPLIT = SplitRule(stratify=("toxic", "severe_toxic", "threat", "identity_hate"))
CARVE = TableLayout(
    answer_columns=(
        "id",
        "toxic",
        "severe_toxic",
        "obscene",
        "threat",
        "insult",
        "identity_hate",
    )
)
