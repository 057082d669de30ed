"""Text normalisation: written numbers, dates, money in sentences, as they are spoken.

About nine tokens in ten are plain words or marks whose spoken form is the token itself.
The rest are classes with rules; some need the word before (a year after "in", a count
elsewhere), so copying, a dictionary, and rules by class are three steps up. Spoken
numbers come from num2words. A task of a language is its makers of tokens.
"""

import csv
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rpg_tasks.kit.files import csv_bytes, write_csv, write_zip
from rpg_tasks.kit.frames import read_text_table
from rpg_tasks.kit.splits import Draw
from rpg_tasks.kit.words import Words, pseudo_words, zipf_weights
from rpg_tasks.task import TaskError

Token = tuple[str, str, str]  # class, before, after
Maker = Callable[[np.random.Generator], list[Token]]

ROMAN = [
    "I",
    "II",
    "III",
    "IV",
    "V",
    "VI",
    "VII",
    "VIII",
    "IX",
    "X",
    "XI",
    "XII",
    "XIII",
    "XIV",
    "XV",
]
# Tokens that a careless reader takes for missing values or breaks on.
_ODD = ("NA", "null", "None", "nan", "007", "1e5")


@dataclass(frozen=True)
class Language:
    """What differs between the languages.

    Attributes:
        code: "en" or "ru", the files' prefix.
        makers: functions that make a token, with words around it, and their shares.
        respell: a pseudo-word in the language's own letters.
    """

    code: str
    makers: Mapping[Maker, float]
    respell: Callable[[str], str] = str


@functools.cache
def spoken(number: int | str, lang: str, to: str = "cardinal", case: str = "n") -> str:
    """A number in words: no hyphen, no comma, no "and".

    Raises:
        TaskError: num2words is not installed.
    """
    try:
        from num2words import num2words
    except ImportError as error:
        raise TaskError(
            "the text-normalisation data need num2words: pip install num2words"
        ) from error
    options = {"case": case} if lang == "ru" else {}
    text: str = num2words(number, lang=lang, to=to, **options)
    return text.replace("-", " ").replace(",", "").replace(" and ", " ")


def digits(text: str, lang: str) -> str:
    """Each digit as a word."""
    return " ".join(spoken(int(d), lang) for d in text)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> int:
    """A whole number, uniform on the logarithmic scale."""
    return int(np.exp(rng.uniform(np.log(low), np.log(high))))


def _sentence(
    rng: np.random.Generator, language: Language, words: Words, p: NDArray[np.float64]
) -> list[Token]:
    plain = [str(w) for w in rng.choice(words, rng.integers(5, 14), p=p)]
    plain[0] = plain[0].capitalize()
    tokens: list[Token] = [("PLAIN", w, w) for w in plain]
    makers, shares = zip(*language.makers.items(), strict=True)
    for _ in range(rng.poisson(1.15)):
        at = int(rng.integers(1, len(tokens) + 1))
        # Never between a word and the number that depends on it.
        if tokens[at - 1][1] in ("in", "since", "until", "by", "около", "более", "до"):
            continue
        tokens[at:at] = makers[rng.choice(len(makers), p=shares)](rng)
    if rng.random() < 0.35:
        tokens.insert(int(rng.integers(1, len(tokens))), ("PUNCT", ",", ","))
    if rng.random() < 0.1:
        tokens = [("PUNCT", '"', '"'), *tokens, ("PUNCT", '"', '"')]
    if rng.random() < 0.02:
        odd = str(rng.choice(_ODD))
        tokens.append(("PLAIN", odd, odd))
    return [*tokens, ("PUNCT", ".", ".")]


def generate(
    language: Language,
    rng: np.random.Generator,
    n_train: int,
    n_test: int,
    public: Path,
    private: Path,
) -> None:
    """Write a task's files; `n_train` and `n_test` count sentences."""
    spelt = map(language.respell, pseudo_words(rng, 2500))
    words = np.array(list(dict.fromkeys(spelt)), object)
    p = zipf_weights(words.size)
    parts = []
    for n in (n_train, n_test):
        rows = [
            (s, t, *token)
            for s in range(n)
            for t, token in enumerate(_sentence(rng, language, words, p))
        ]
        columns = ["sentence_id", "token_id", "class", "before", "after"]
        parts.append(pd.DataFrame(rows, columns=columns))
    _write(language.code, parts[0], parts[1], public, private)


def carve(lang: str, draw: Draw, src: Path, public: Path, private: Path) -> None:
    """Whole sentences; ids are renumbered from 0 on both sides, as in the test."""
    frame = read_text_table(src / f"{lang}_train.csv.zip")
    mask = draw.mask(frame)
    parts = []
    for part in (frame[~mask], frame[mask]):
        part = part.assign(sentence_id=pd.factorize(part["sentence_id"])[0])
        parts.append(part.astype({"token_id": int}))
    _write(lang, parts[0], parts[1], public, private)


def _write(
    lang: str, train: pd.DataFrame, held: pd.DataFrame, public: Path, private: Path
) -> None:
    """Write the three public zips and the private answers of a text-normalisation task.

    Args:
        lang: "en" or "ru", the files' prefix.
        train: sentence_id, token_id, class, before, after.
        held: the same columns for the rows that scripts must answer.
        public: folder for the zips.
        private: folder for the answers.
    """
    quoted = csv.QUOTE_NONNUMERIC
    ids = held["sentence_id"].astype(str) + "_" + held["token_id"].astype(str)
    sample = pd.DataFrame({"id": ids, "after": held["before"]})
    tables = {
        f"{lang}_train.csv": train,
        f"{lang}_test_2.csv": held[["sentence_id", "token_id", "before"]],
        f"{lang}_sample_submission_2.csv": sample,
    }
    for name, table in tables.items():
        write_zip(public / f"{name}.zip", [(name, csv_bytes(table, quoted))])
    write_csv(sample.assign(after=held["after"]), private / "answers.csv", quoted)
