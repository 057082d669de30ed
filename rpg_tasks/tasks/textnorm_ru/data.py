"""Text normalisation in Russian: the classes of tokens and how each is spoken."""

import functools

import numpy as np

from rpg_tasks.kit import SplitRule, SyntheticData, pseudo_words, textnorm
from rpg_tasks.kit.textnorm import ROMAN, Token, log_uniform, spoken

_MONTHS = (
    *("января", "февраля", "марта", "апреля", "мая", "июня"),
    *("июля", "августа", "сентября", "октября", "ноября", "декабря"),
)


_CYRILLIC = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопкрстувшхиз")


def _cardinal(rng: np.random.Generator) -> list[Token]:
    number = log_uniform(rng, 2, 3000)
    # Prepositions of the genitive change the spoken form, not the written one.
    if rng.random() < 0.4:
        before = str(rng.choice(["около", "более", "до"]))
        after = spoken(number, "ru", case="g")
        return [("PLAIN", before, before), ("CARDINAL", str(number), after)]
    return [("CARDINAL", str(number), spoken(number, "ru"))]


def _date(rng: np.random.Generator) -> list[Token]:
    year = int(rng.integers(1800, 2020))
    nominative = spoken(year, "ru", "ordinal")
    genitive = spoken(year, "ru", "ordinal", case="g")
    kind = rng.random()
    if kind < 0.3:
        return [("DATE", f"{year} год", f"{nominative} год")]
    if kind < 0.65:
        return [("DATE", f"{year} года", f"{genitive} года")]
    day, month = int(rng.integers(1, 29)), str(rng.choice(_MONTHS))
    first = spoken(day, "ru", "ordinal", case="g")
    if kind < 0.85:
        return [
            ("DATE", f"{day} {month} {year} года", f"{first} {month} {genitive} года")
        ]
    return [("DATE", f"{day} {month}", f"{first} {month}")]


def _measure(rng: np.random.Generator) -> list[Token]:
    number = log_uniform(rng, 5, 900)
    one, few, many = (
        ("процент", "процента", "процентов"),
        ("километр", "километра", "километров"),
        ("метр", "метра", "метров"),
    )[kind := int(rng.integers(3))]
    last = number % 10 if number % 100 // 10 != 1 else 0
    unit = one if last == 1 else few if last in (2, 3, 4) else many
    sign = ("%", " км", " м")[kind]
    return [("MEASURE", f"{number}{sign}", f"{spoken(number, 'ru')} {unit}")]


def _letters(rng: np.random.Generator) -> list[Token]:
    text = "".join(rng.choice(list("АБВГДЕКЛМНОПРСТУФ"), rng.integers(2, 5)))
    return [("LETTERS", text, " ".join(text.lower()))]


def _ordinal(rng: np.random.Generator) -> list[Token]:
    number = int(rng.integers(1, 100))
    if rng.random() < 0.5:
        k = int(rng.integers(len(ROMAN)))
        return [("ORDINAL", ROMAN[k], spoken(k + 1, "ru", "ordinal"))]
    return [("ORDINAL", f"{number}-й", spoken(number, "ru", "ordinal"))]


def _latin(rng: np.random.Generator) -> list[Token]:
    word = str(pseudo_words(rng, 1, (2, 3))[0])
    after = " ".join(f"{c}_trans" for c in word.translate(_CYRILLIC))
    return [("PLAIN", word.capitalize(), after)]


def _decimal(rng: np.random.Generator) -> list[Token]:
    whole, tenth = int(rng.integers(2, 60)), int(rng.integers(2, 10))
    parts = spoken(tenth, "ru") if tenth > 2 else "две"
    units = spoken(whole, "ru")
    units = f"{units[:-3]}две" if units.endswith("два") else units
    units = f"{units[:-4]}одна" if units.endswith("один") else units
    joint = "целая" if units.endswith("одна") else "целых"
    return [("DECIMAL", f"{whole},{tenth}", f"{units} {joint} и {parts} десятых")]


_LANGUAGE = textnorm.Language(
    "ru",
    {
        _date: 0.24,
        _cardinal: 0.22,
        _latin: 0.16,
        _letters: 0.14,
        _measure: 0.12,
        _ordinal: 0.08,
        _decimal: 0.04,
    },
    respell=lambda word: word.translate(_CYRILLIC),
)

SYNTHETIC = SyntheticData(
    functools.partial(textnorm.generate, _LANGUAGE),
    small=(4000, 1000),
    medium=(20000, 4000),
)
SPLIT = SplitRule(group="sentence_id")
CARVE = functools.partial(textnorm.carve, "ru")
