"""Text normalisation, English and Russian: written numbers, dates, money in sentences.

About nine tokens in ten are plain words or marks whose spoken form is the token itself.
The rest are classes with rules; some need the word before (a year after "in", a count
elsewhere), so copying, a dictionary, and rules by class are three steps up. Spoken
numbers come from num2words.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.registry import TaskError
from rpg_tasks.synthetic.common import pseudo_words, zipf_weights

Token = tuple[str, str, str]  # class, before, after

_EN_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_RU_MONTHS = [
    "января",
    "февраля",
    "марта",
    "апреля",
    "мая",
    "июня",
    "июля",
    "августа",
    "сентября",
    "октября",
    "ноября",
    "декабря",
]
_EN_UNITS = {
    "km": "kilometers",
    "kg": "kilograms",
    "m": "meters",
    "mm": "millimeters",
    "ft": "feet",
    "mph": "miles per hour",
    "%": "percent",
}
_ROMAN = [
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
_CYRILLIC = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопкрстувшхиз")


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
    text = num2words(number, lang=lang, to=to, **options)
    return text.replace("-", " ").replace(",", "").replace(" and ", " ")


def digits(text: str, lang: str) -> str:
    """Each digit as a word."""
    return " ".join(spoken(int(d), lang) for d in text)


def _en_year(year: int) -> str:
    return spoken(year, "en", "year")


def _en_count(number: int) -> str:
    return spoken(number, "en")


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> int:
    return int(np.exp(rng.uniform(np.log(low), np.log(high))))


def _en_date(rng: np.random.Generator) -> list[Token]:
    year, day = int(rng.integers(1850, 2020)), int(rng.integers(1, 29))
    month = int(rng.integers(12))
    name = _EN_MONTHS[month]
    nth = spoken(day, "en", "ordinal")
    kind = rng.random()
    if kind < 0.5:
        before = str(rng.choice(["in", "since", "until", "by"]))
        return [("PLAIN", before, before), ("DATE", str(year), _en_year(year))]
    if kind < 0.7:
        after = f"{name.lower()} {nth} {_en_year(year)}"
        return [("DATE", f"{name} {day}, {year}", after)]
    after = f"the {nth} of {name.lower()} {_en_year(year)}"
    if kind < 0.88:
        return [("DATE", f"{day} {name} {year}", after)]
    return [("DATE", f"{year}-{month + 1:02d}-{day:02d}", after)]


def _en_cardinal(rng: np.random.Generator) -> list[Token]:
    number = _log_uniform(rng, 2, 9000)
    written = f"{number:,}" if number > 999 and rng.random() < 0.6 else str(number)
    return [("CARDINAL", written, _en_count(number))]


def _en_ordinal(rng: np.random.Generator) -> list[Token]:
    if rng.random() < 0.4:
        k = int(rng.integers(len(_ROMAN)))
        # A chapter or a king: nothing near by tells, as often in the competition.
        if rng.random() < 0.3:
            return [("CARDINAL", _ROMAN[k], _en_count(k + 1))]
        after = f"the {spoken(k + 1, 'en', 'ordinal')}"
        return [("ORDINAL", _ROMAN[k], after)]
    number = int(rng.integers(1, 130))
    tail = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    tail = "th" if number % 100 in (11, 12, 13) else tail
    return [("ORDINAL", f"{number}{tail}", spoken(number, "en", "ordinal"))]


def _en_money(rng: np.random.Generator) -> list[Token]:
    sign, unit = (("$", "dollars"), ("£", "pounds"))[int(rng.random() < 0.3)]
    if rng.random() < 0.35:
        number = int(rng.integers(2, 400))
        after = f"{_en_count(number)} million {unit}"
        return [("MONEY", f"{sign}{number} million", after)]
    number, cents = _log_uniform(rng, 2, 5000), int(rng.integers(10, 100))
    if rng.random() < 0.6:
        return [("MONEY", f"{sign}{number}", f"{_en_count(number)} {unit}")]
    small = "cents" if sign == "$" else "pence"
    after = f"{_en_count(number)} {unit} and {_en_count(cents)} {small}"
    return [("MONEY", f"{sign}{number}.{cents}", after)]


def _en_measure(rng: np.random.Generator) -> list[Token]:
    unit = str(rng.choice(list(_EN_UNITS)))
    number = _log_uniform(rng, 2, 900)
    gap = "" if unit == "%" or rng.random() < 0.3 else " "
    if rng.random() < 0.4:
        part = str(rng.integers(1, 10))
        after = f"{_en_count(number)} point {digits(part, 'en')} {_EN_UNITS[unit]}"
        return [("MEASURE", f"{number}.{part}{gap}{unit}", after)]
    after = f"{_en_count(number)} {_EN_UNITS[unit]}"
    return [("MEASURE", f"{number}{gap}{unit}", after)]


def _en_letters(rng: np.random.Generator) -> list[Token]:
    text = "".join(rng.choice(list("ABCDEFGHIKLMNOPRSTU"), rng.integers(2, 5)))
    return [("LETTERS", text, " ".join(text.lower()))]


def _en_time(rng: np.random.Generator) -> list[Token]:
    hour, minute = int(rng.integers(1, 13)), int(rng.integers(0, 60))
    half = str(rng.choice(["am", "pm"]))
    middle = f" {_en_count(minute)}" if minute > 9 else f" o {_en_count(minute)}"
    after = f"{_en_count(hour)}{middle if minute else ''} {' '.join(half)}"
    return [("TIME", f"{hour}:{minute:02d} {half}", after)]


def _en_decimal(rng: np.random.Generator) -> list[Token]:
    whole, part = int(rng.integers(0, 60)), str(rng.integers(1, 1000))
    return [
        ("DECIMAL", f"{whole}.{part}", f"{_en_count(whole)} point {digits(part, 'en')}")
    ]


def _en_verbatim(rng: np.random.Generator) -> list[Token]:
    mark, word = (("&", "and"), ("#", "number"))[int(rng.random() < 0.3)]
    return [("VERBATIM", mark, word)]


def _ru_cardinal(rng: np.random.Generator) -> list[Token]:
    number = _log_uniform(rng, 2, 3000)
    # Prepositions of the genitive change the spoken form, not the written one.
    if rng.random() < 0.4:
        before = str(rng.choice(["около", "более", "до"]))
        after = spoken(number, "ru", case="g")
        return [("PLAIN", before, before), ("CARDINAL", str(number), after)]
    return [("CARDINAL", str(number), spoken(number, "ru"))]


def _ru_date(rng: np.random.Generator) -> list[Token]:
    year = int(rng.integers(1800, 2020))
    nominative = spoken(year, "ru", "ordinal")
    genitive = spoken(year, "ru", "ordinal", case="g")
    kind = rng.random()
    if kind < 0.3:
        return [("DATE", f"{year} год", f"{nominative} год")]
    if kind < 0.65:
        return [("DATE", f"{year} года", f"{genitive} года")]
    day, month = int(rng.integers(1, 29)), str(rng.choice(_RU_MONTHS))
    first = spoken(day, "ru", "ordinal", case="g")
    if kind < 0.85:
        return [
            ("DATE", f"{day} {month} {year} года", f"{first} {month} {genitive} года")
        ]
    return [("DATE", f"{day} {month}", f"{first} {month}")]


def _ru_measure(rng: np.random.Generator) -> list[Token]:
    number = _log_uniform(rng, 5, 900)
    one, few, many = (
        ("процент", "процента", "процентов"),
        ("километр", "километра", "километров"),
        ("метр", "метра", "метров"),
    )[kind := int(rng.integers(3))]
    last = number % 10 if number % 100 // 10 != 1 else 0
    unit = one if last == 1 else few if last in (2, 3, 4) else many
    sign = ("%", " км", " м")[kind]
    return [("MEASURE", f"{number}{sign}", f"{spoken(number, 'ru')} {unit}")]


def _ru_letters(rng: np.random.Generator) -> list[Token]:
    text = "".join(rng.choice(list("АБВГДЕКЛМНОПРСТУФ"), rng.integers(2, 5)))
    return [("LETTERS", text, " ".join(text.lower()))]


def _ru_ordinal(rng: np.random.Generator) -> list[Token]:
    number = int(rng.integers(1, 100))
    if rng.random() < 0.5:
        k = int(rng.integers(len(_ROMAN)))
        return [("ORDINAL", _ROMAN[k], spoken(k + 1, "ru", "ordinal"))]
    return [("ORDINAL", f"{number}-й", spoken(number, "ru", "ordinal"))]


def _ru_latin(rng: np.random.Generator) -> list[Token]:
    word = str(pseudo_words(rng, 1, (2, 3))[0])
    after = " ".join(f"{c}_trans" for c in word.translate(_CYRILLIC))
    return [("PLAIN", word.capitalize(), after)]


def _ru_decimal(rng: np.random.Generator) -> list[Token]:
    whole, tenth = int(rng.integers(2, 60)), int(rng.integers(2, 10))
    parts = spoken(tenth, "ru") if tenth > 2 else "две"
    units = spoken(whole, "ru")
    units = f"{units[:-3]}две" if units.endswith("два") else units
    units = f"{units[:-4]}одна" if units.endswith("один") else units
    joint = "целая" if units.endswith("одна") else "целых"
    return [("DECIMAL", f"{whole},{tenth}", f"{units} {joint} и {parts} десятых")]


_Maker = Callable[[np.random.Generator], list[Token]]
_MAKERS: dict[str, dict[_Maker, float]] = {
    "en": {
        _en_date: 0.27,
        _en_cardinal: 0.2,
        _en_letters: 0.16,
        _en_measure: 0.1,
        _en_ordinal: 0.09,
        _en_money: 0.08,
        _en_time: 0.04,
        _en_decimal: 0.03,
        _en_verbatim: 0.03,
    },
    "ru": {
        _ru_date: 0.24,
        _ru_cardinal: 0.22,
        _ru_latin: 0.16,
        _ru_letters: 0.14,
        _ru_measure: 0.12,
        _ru_ordinal: 0.08,
        _ru_decimal: 0.04,
    },
}
# Tokens that a careless reader takes for missing values or breaks on.
_ODD = ("NA", "null", "None", "nan", "007", "1e5")


def _sentence(
    rng: np.random.Generator, words: np.ndarray, p: np.ndarray, lang: str
) -> list[Token]:
    plain = [str(w) for w in rng.choice(words, rng.integers(5, 14), p=p)]
    plain[0] = plain[0].capitalize()
    tokens: list[Token] = [("PLAIN", w, w) for w in plain]
    makers, shares = zip(*_MAKERS[lang].items(), strict=True)
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


def _textnorm(
    lang: str,
    rng: np.random.Generator,
    n_train: int,
    n_test: int,
    public: Path,
    private: Path,
) -> None:
    from rpg_tasks.carve_special import write_textnorm

    words = pseudo_words(rng, 2500)
    if lang == "ru":
        words = np.array(
            list(dict.fromkeys(w.translate(_CYRILLIC) for w in words)), object
        )
    p = zipf_weights(words.size)
    parts = []
    for n in (n_train, n_test):
        rows = [
            (s, t, *token)
            for s in range(n)
            for t, token in enumerate(_sentence(rng, words, p, lang))
        ]
        columns = ["sentence_id", "token_id", "class", "before", "after"]
        parts.append(pd.DataFrame(rows, columns=columns))
    write_textnorm(lang, *parts, public, private)


textnorm_en = functools.partial(_textnorm, "en")
textnorm_ru = functools.partial(_textnorm, "ru")
