"""Text normalisation in English: the classes of tokens and how each is spoken."""

import functools

import numpy as np

from rpg_tasks.kit import SplitRule, SyntheticData, textnorm
from rpg_tasks.kit.textnorm import ROMAN, Token, digits, log_uniform, spoken

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


_UNITS = {
    "km": "kilometers",
    "kg": "kilograms",
    "m": "meters",
    "mm": "millimeters",
    "ft": "feet",
    "mph": "miles per hour",
    "%": "percent",
}


def _year(year: int) -> str:
    return spoken(year, "en", "year")


def _count(number: int) -> str:
    return spoken(number, "en")


def _date(rng: np.random.Generator) -> list[Token]:
    year, day = int(rng.integers(1850, 2020)), int(rng.integers(1, 29))
    month = int(rng.integers(12))
    name = _MONTHS[month]
    nth = spoken(day, "en", "ordinal")
    kind = rng.random()
    if kind < 0.5:
        before = str(rng.choice(["in", "since", "until", "by"]))
        return [("PLAIN", before, before), ("DATE", str(year), _year(year))]
    if kind < 0.7:
        after = f"{name.lower()} {nth} {_year(year)}"
        return [("DATE", f"{name} {day}, {year}", after)]
    after = f"the {nth} of {name.lower()} {_year(year)}"
    if kind < 0.88:
        return [("DATE", f"{day} {name} {year}", after)]
    return [("DATE", f"{year}-{month + 1:02d}-{day:02d}", after)]


def _cardinal(rng: np.random.Generator) -> list[Token]:
    number = log_uniform(rng, 2, 9000)
    written = f"{number:,}" if number > 999 and rng.random() < 0.6 else str(number)
    return [("CARDINAL", written, _count(number))]


def _ordinal(rng: np.random.Generator) -> list[Token]:
    if rng.random() < 0.4:
        k = int(rng.integers(len(ROMAN)))
        # A chapter or a king: nothing near by tells, as often in the competition.
        if rng.random() < 0.3:
            return [("CARDINAL", ROMAN[k], _count(k + 1))]
        after = f"the {spoken(k + 1, 'en', 'ordinal')}"
        return [("ORDINAL", ROMAN[k], after)]
    number = int(rng.integers(1, 130))
    tail = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    tail = "th" if number % 100 in (11, 12, 13) else tail
    return [("ORDINAL", f"{number}{tail}", spoken(number, "en", "ordinal"))]


def _money(rng: np.random.Generator) -> list[Token]:
    sign, unit = (("$", "dollars"), ("£", "pounds"))[int(rng.random() < 0.3)]
    if rng.random() < 0.35:
        number = int(rng.integers(2, 400))
        after = f"{_count(number)} million {unit}"
        return [("MONEY", f"{sign}{number} million", after)]
    number, cents = log_uniform(rng, 2, 5000), int(rng.integers(10, 100))
    if rng.random() < 0.6:
        return [("MONEY", f"{sign}{number}", f"{_count(number)} {unit}")]
    small = "cents" if sign == "$" else "pence"
    after = f"{_count(number)} {unit} and {_count(cents)} {small}"
    return [("MONEY", f"{sign}{number}.{cents}", after)]


def _measure(rng: np.random.Generator) -> list[Token]:
    unit = str(rng.choice(list(_UNITS)))
    number = log_uniform(rng, 2, 900)
    gap = "" if unit == "%" or rng.random() < 0.3 else " "
    if rng.random() < 0.4:
        part = str(rng.integers(1, 10))
        after = f"{_count(number)} point {digits(part, 'en')} {_UNITS[unit]}"
        return [("MEASURE", f"{number}.{part}{gap}{unit}", after)]
    after = f"{_count(number)} {_UNITS[unit]}"
    return [("MEASURE", f"{number}{gap}{unit}", after)]


def _letters(rng: np.random.Generator) -> list[Token]:
    text = "".join(rng.choice(list("ABCDEFGHIKLMNOPRSTU"), rng.integers(2, 5)))
    return [("LETTERS", text, " ".join(text.lower()))]


def _time(rng: np.random.Generator) -> list[Token]:
    hour, minute = int(rng.integers(1, 13)), int(rng.integers(0, 60))
    half = str(rng.choice(["am", "pm"]))
    middle = f" {_count(minute)}" if minute > 9 else f" o {_count(minute)}"
    after = f"{_count(hour)}{middle if minute else ''} {' '.join(half)}"
    return [("TIME", f"{hour}:{minute:02d} {half}", after)]


def _decimal(rng: np.random.Generator) -> list[Token]:
    whole, part = int(rng.integers(0, 60)), str(rng.integers(1, 1000))
    return [
        ("DECIMAL", f"{whole}.{part}", f"{_count(whole)} point {digits(part, 'en')}")
    ]


def _verbatim(rng: np.random.Generator) -> list[Token]:
    mark, word = (("&", "and"), ("#", "number"))[int(rng.random() < 0.3)]
    return [("VERBATIM", mark, word)]


_LANGUAGE = textnorm.Language(
    "en",
    {
        _date: 0.27,
        _cardinal: 0.2,
        _letters: 0.16,
        _measure: 0.1,
        _ordinal: 0.09,
        _money: 0.08,
        _time: 0.04,
        _decimal: 0.03,
        _verbatim: 0.03,
    },
)

SYNTHETIC = SyntheticData(
    functools.partial(textnorm.generate, _LANGUAGE),
    small=(4000, 1000),
    medium=(20000, 4000),
)
SPLIT = SplitRule(group="sentence_id")
CARVE = functools.partial(textnorm.carve, "en")
