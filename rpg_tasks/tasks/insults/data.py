"""Comments that insult somebody present."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    SplitRule,
    SyntheticData,
    TableLayout,
    Words,
    pseudo_words,
    stratified_choice,
    token_lists,
    write_csv,
    zipf_weights,
)

_AIMED = (
    *("you {}", "you are a {}", "your {} face"),
    *("you're such {}", "u {}", "you stupid {}"),
)
_SPARED = (
    *("you are not a {}", "he said {}", "the {} people"),
    *("never a {}", "those {}"),
)


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Comments; an insult is a lexicon word near "you", unless it is negated.

    The same words about others, and "you are not a ...", are no insult, so single words
    give a fair score and word pairs or character n-grams a better one. Comments keep
    their literal quotes and backslash escapes, as the competition's do.
    """
    n = n_train + n_test
    words = pseudo_words(rng, 3000)
    slurs = np.array([w + "oid" for w in pseudo_words(rng, 120, (2, 2))], dtype=object)
    weights, slur_p = zipf_weights(words.size), zipf_weights(slurs.size)
    label = (rng.random(n) < 0.265).astype(int)
    lengths = np.clip(rng.lognormal(2.6, 0.7, n), 3, 120).astype(int)
    bodies = token_lists(rng, words, weights, lengths)
    comments = []
    for y, body in zip(label, bodies, strict=True):
        kind = rng.random()
        slur = str(rng.choice(slurs, p=slur_p)) + ("s" if rng.random() < 0.3 else "")
        phrase = _phrase(rng, bool(y), kind, slur, words)
        at = rng.integers(0, len(body) + 1)
        text = " ".join([*body[:at], *([phrase] if phrase else []), *body[at:]])
        comments.append(_as_posted(rng, text, shout=bool(y) and rng.random() < 0.15))
    comments = _distinct(comments)
    frame = pd.DataFrame({"Insult": label, "Date": _dates(rng, n), "Comment": comments})
    test = stratified_choice(rng, frame["Insult"], n_test)
    hidden = frame[test].copy()
    write_csv(frame[~test], public / "train.csv")
    write_csv(hidden[["Date", "Comment"]], public / "test.csv")
    write_csv(hidden.assign(Insult=0), public / "sample_submission_null.csv")
    hidden["Usage"] = np.where(rng.random(n_test) < 0.5, "PublicTest", "PrivateTest")
    write_csv(hidden, private / "test.csv")


def _phrase(
    rng: np.random.Generator, insult: bool, kind: float, slur: str, words: Words
) -> str:
    """What makes a comment an insult, or looks like it; may be empty."""
    if insult:
        return str(rng.choice(_AIMED)).format(slur) if kind < 0.92 else ""
    if kind < 0.3:
        return str(rng.choice(_SPARED)).format(slur)
    if kind < 0.55:
        return "you " + str(rng.choice(words[:300]))
    return str(rng.choice(_AIMED)).format(slur) if kind < 0.57 else ""


def _dates(rng: np.random.Generator, n: int) -> list[str]:
    """Time stamps of 2012; some are not known."""
    draws = zip(
        rng.integers(1, 10, n),
        rng.integers(1, 29, n),
        rng.integers(0, 24, n),
        rng.integers(0, 3600, n),
        rng.random(n) < 0.82,
        strict=True,
    )
    return [
        f"2012{m:02d}{d:02d}{h:02d}{s // 60:02d}{s % 60:02d}Z" if known else ""
        for m, d, h, s, known in draws
    ]


def _as_posted(rng: np.random.Generator, text: str, shout: bool) -> str:
    """Literal outer quotes and escapes, as if dumped by a careless crawler."""
    text = text.upper() if shout else text[:1].upper() + text[1:]
    for piece, share in (
        ("\\xa0", 0.15),
        ("\\n", 0.15),
        (", ", 0.3),
        ("\\u2019s", 0.05),
    ):
        if rng.random() < share:
            text = text.replace(" ", piece, 1)
    return f'"{text}{rng.choice(["", ".", "!", "..."])}"'


def _distinct(texts: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for text in texts:
        count = seen.get(text, 0)
        seen[text] = count + 1
        out.append(text if not count else text[:-1] + "!" * count + '"')
    return out


SYNTHETIC = SyntheticData(
    generate,
    small=(3000, 900),
    medium=(3947, 2647),
)
SPLIT = SplitRule(group="Comment", stratify=("Insult",), single=True)
CARVE = TableLayout(
    sample="sample_submission_null.csv",
    id="Comment",
    sample_copies=("Date", "Comment"),
    answer_constants=(("Usage", "PublicTest"),),
)
