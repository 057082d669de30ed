"""Pseudo-words and sentences made of them; nothing here means (or offends) anything."""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.object_]

_ONSETS = (
    *("b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "w"),
    *("br", "ch", "cr", "dr", "fl", "gr", "pl", "sh", "st", "th", "tr"),
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ee", "io", "ou")
_CODAS = ("", "", "", "n", "r", "s", "t", "l", "nd", "st", "ck")


def pseudo_words(
    rng: np.random.Generator, n: int, syllables: tuple[int, int] = (1, 3)
) -> Words:
    """`n` distinct pronounceable words; short ones come first, as in a real lexicon."""
    words: dict[str, None] = {}
    while len(words) < n:
        k = rng.integers(syllables[0], syllables[1] + 1)
        parts = [rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(k)]
        words["".join(parts) + rng.choice(_CODAS)] = None
    return np.array(sorted(words, key=len), dtype=object)


def zipf_weights(
    n: int, exponent: float = 1.0, shift: float = 2.7
) -> NDArray[np.float64]:
    """Zipf-Mandelbrot probabilities, p_k proportional to (k + shift)^-exponent."""
    p = (np.arange(n) + shift) ** -exponent
    weights: NDArray[np.float64] = p / p.sum()
    return weights


def token_lists(
    rng: np.random.Generator,
    words: Words,
    p: NDArray[np.float64],
    lengths: NDArray[np.int_],
) -> list[list[str]]:
    """One list of words per entry of `lengths`, drawn independently from `p`."""
    flat = words[rng.choice(words.size, int(lengths.sum()), p=p)]
    return [list(part) for part in np.split(flat, np.cumsum(lengths)[:-1])]


def sentence(tokens: list[str], end: str = ".") -> str:
    """Join tokens as a sentence: capital first letter, closing mark."""
    text = " ".join(tokens)
    return text[:1].upper() + text[1:] + end
